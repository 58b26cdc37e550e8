"""Linear algebra: importing this module enters its rows into the table."""

from . import (
    _linalg_det,
    _linalg_functions,
    _linalg_lu,
    _linalg_qr,
    _linalg_spectral,
    _linalg_triangular,
)

_ROWS = (
    _linalg_det,
    _linalg_functions,
    _linalg_lu,
    _linalg_qr,
    _linalg_spectral,
    _linalg_triangular,
)
