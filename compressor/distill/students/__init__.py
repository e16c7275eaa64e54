"""Ways of making a student; ``init`` names one. Adding a way is adding a file and a line here."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from compressor.distill.students.base import StudentSettings
from compressor.distill.students.copied import CopiedStudent
from compressor.distill.students.new import NewStudent
from compressor.distill.students.sliced import SlicedStudent


def _init_of(value: Any) -> str:
    found = value.get("init", "copy") if isinstance(value, dict) else getattr(value, "init", "copy")
    return str(found)


StudentConfig = Annotated[
    Annotated[CopiedStudent, Tag("copy")] | Annotated[SlicedStudent, Tag("slice")] | Annotated[NewStudent, Tag("new")],
    Discriminator(_init_of),
]

__all__ = ["CopiedStudent", "NewStudent", "SlicedStudent", "StudentConfig", "StudentSettings"]
