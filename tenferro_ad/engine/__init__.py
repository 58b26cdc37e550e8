"""What the user holds."""
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._functions import *
from ._make import asarray, variable
from ._tape import Tape
