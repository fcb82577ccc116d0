"""Lets the tests here import `fake_device`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
