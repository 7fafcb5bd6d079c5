"""What a change does to a head, whichever database it is written to."""

from lockstitch.backend import Change, Fields


def head_fields(wanted: Change) -> Fields:
    """The head's changed fields, with the tip that the appended stitches leave."""
    for stitch in reversed(wanted.stitches):
        if stitch.linked:
            return {**wanted.head, "tip_id": stitch.id}
    return wanted.head
