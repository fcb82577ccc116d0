"""Pictures: the bytes of a file, decoded within limits to red, green and blue.

What is refused is refused before pixels are made of it.  Alpha is dropped, as the models' own preprocessing does.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 36_000_000
"""Of a picture.  Decoding takes up to seven bytes for each."""
MOST_BYTES = 64 << 20
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def decode_picture(data: bytes) -> np.ndarray:
    """The pixels of a file as uint8 (height, width, 3), turned as its EXIF orientation says.

    Raises BadRequest naming what is wrong with the file.
    """
    from PIL import Image

    if not data:
        raise _bad("it is empty")
    if len(data) > MOST_BYTES:
        raise _bad(f"it has {len(data)} bytes; {MOST_BYTES} at most are taken")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # what is too large is refused below
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError:
        raise _bad(f"it has more than {MOST_PIXELS} pixels") from None
    except Image.UnidentifiedImageError:
        raise _bad(f"it is none of {', '.join(FORMATS)}, or its beginning is damaged") from None
    except Exception as error:  # a decoder over bytes that anybody may have sent
        raise _bad(_words(error)) from error
    with image:
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise _bad(f"it has {width} × {height} pixels; {MOST_PIXELS} at most are taken")
        try:
            if getattr(image, "is_animated", False) and image.format != "MPO":  # a photo with a preview or its depth
                raise _bad("it is animated; send one frame")
            image.load()
            return _rgb(image, _TURNS.get(image.getexif().get(_ORIENTATION, 1)))
        except BadRequest:
            raise
        except Exception as error:
            raise _bad(_words(error)) from error


_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
"""By EXIF's orientation, what makes a picture upright."""


def _rgb(image: Image, turn: str | None) -> np.ndarray:
    """The pixels of an image, turned; it is closed as soon as it is not needed."""
    from PIL import Image as Images

    if image.mode in ("I", "F"):
        raise _bad(f"its pixels are of the kind {image.mode!r}, without a known range")
    if image.mode.startswith("I;16"):  # of which Pillow would keep the lower half
        made = Images.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)).convert("RGB")
    elif image.mode == "RGB":
        made = image.copy() if turn is None else image
    else:
        made = image.convert("RGB")
        image.close()
    if turn is not None:
        made = made.transpose(Images.Transpose[turn])
    image.close()
    return np.asarray(made)


def resize_picture(
    picture: np.ndarray, width: int, height: int, how: Literal["bicubic", "bilinear"] = "bicubic"
) -> np.ndarray:
    """A picture, uint8 (h, w, 3), at another size, resampled as Pillow does: with antialiasing where it shrinks."""
    from PIL import Image

    if picture.shape[:2] == (height, width):
        return picture
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling[how.upper()]))


def _words(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said[:200] or f"it can't be decoded ({type(error).__name__})"


def _bad(reason: Any) -> BadRequest:
    return BadRequest(f"the picture can't be read: {reason}", param="messages")
