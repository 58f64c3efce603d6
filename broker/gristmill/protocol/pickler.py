"""cloudpickle's pickler, with one change: code keeps the name of its file, so that a traceback says where to look.

cloudpickle writes `<dynamic-code>` there, so that equal functions of different files become equal bytes.
"""

from __future__ import annotations

import functools
import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

WITHOUT_FILE = "<dynamic-code>"


@functools.cache
def pickler() -> Any:
    """The class; made when first needed, since it imports cloudpickle."""
    import cloudpickle

    by_cloudpickle = cloudpickle.Pickler.dispatch_table[CodeType]

    def reduce_code(code: CodeType) -> tuple[Any, ...]:
        make, arguments = by_cloudpickle(code)
        # A fresh string: pickle would refer back to one that it has met, and interning would show in the bytes.
        file = "".join(code.co_filename)
        return make, tuple(file if argument == WITHOUT_FILE else argument for argument in arguments)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: reduce_code}, cloudpickle.Pickler.dispatch_table)

    return Pickler


def dumps(value: Any, protocol: int) -> bytes:
    """Pickle with functions and classes of `__main__`, and others that cannot be imported, by value."""
    file = io.BytesIO()
    pickler()(file, protocol=protocol).dump(value)
    return file.getvalue()
