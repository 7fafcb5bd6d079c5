"""`PlainAnnotations`: a griffe extension that shows `Annotated[str, Field(…)]` as `str` in the API reference."""

from typing import Any

import griffe


class PlainAnnotations(griffe.Extension):
    """Removes the metadata of annotations. The docstrings state the limits that users need."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Change the annotation of an attribute."""
        attr.annotation = plain(attr.annotation)


def plain(annotation: Any) -> Any:
    """Return an annotation without `Annotated`."""
    if isinstance(annotation, griffe.ExprBinOp):
        return griffe.ExprBinOp(plain(annotation.left), annotation.operator, plain(annotation.right))
    if isinstance(annotation, griffe.ExprSubscript) and str(annotation.left) == "Annotated":
        return annotation.slice.elements[0] if isinstance(annotation.slice, griffe.ExprTuple) else annotation.slice
    return annotation
