"""Pictures: the bytes of a file, decoded within limits to red, green and blue.

What is refused is refused before pixels are made of it.  Alpha is dropped, as the models' own preprocessing does.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 50_000_000
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
            if getattr(image, "is_animated", False):
                raise _bad("it is animated; send one frame")
            image.load()
            turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1), _TURNS[1])
            return np.ascontiguousarray(turn(_rgb(image)))
        except BadRequest:
            raise
        except Exception as error:
            raise _bad(_words(error)) from error


_ORIENTATION = 0x0112
_TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x),
}
"""By EXIF's orientation, what makes a picture upright."""


def _rgb(image: Image) -> np.ndarray:
    """The pixels of an image, which is closed as soon as it is not needed."""
    if image.mode.startswith("I;16"):  # of which Pillow would keep the lower half
        grey = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, 2)
    if image.mode in ("I", "F"):
        raise _bad(f"its pixels are of the kind {image.mode!r}, without a known range")
    if image.mode == "RGB":
        return np.asarray(image)
    converted = image.convert("RGB")
    image.close()
    return np.asarray(converted)


def resize_picture(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """A picture, uint8 (h, w, 3), at another size: bicubic as Pillow's, with antialiasing where it shrinks."""
    from PIL import Image

    if picture.shape[:2] == (height, width):
        return picture
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC))


def _words(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said[:200] or f"it can't be decoded ({type(error).__name__})"


def _bad(reason: Any) -> BadRequest:
    return BadRequest(f"the picture can't be read: {reason}", param="messages")
