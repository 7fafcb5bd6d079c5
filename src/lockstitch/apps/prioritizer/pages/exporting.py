"""A plan as Markdown, for whoever goes on with it elsewhere."""

from typing import Final

from lockstitch.apps.prioritizer.pages.picture import Card, Picture
from lockstitch.apps.prioritizer.pages.shown import Shown
from lockstitch.apps.prioritizer.pages.wording import hours

_MARKS: Final = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>#|"})


def markdown(shown: Shown, picture: Picture) -> str:
    """Waves as headings, tasks as items to tick off, each with what it waits for."""
    parts = [f"# {_plain(shown.outcome)}", _plain(shown.summary)]
    for wave in picture.waves:
        known = wave.known
        spent = f", {hours(known.estimated_duration_hours)}" if known.estimated_duration_hours is not None else ""
        parts.append(f"## Wave {known.wave_number} ({wave.manner}{spent})")
        parts.append("\n".join(_item(card) for card in wave.cards))
    notes = [*shown.cycles, *([shown.note] if shown.note else []), *shown.warnings]
    if notes:
        parts.append("## Notes")
        parts.append("\n".join(f"- {_plain(note)}" for note in notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _item(card: Card) -> str:
    told = [f"confidence {card.confidence:.2f}"]
    if card.place.estimate_hours is not None:
        told.insert(0, hours(card.place.estimate_hours))
    if card.waits_for:
        told.append("after " + ", ".join(_plain(one.id) for one in card.waits_for))
    return f"- [ ] **{_plain(card.id)}** {_plain(card.place.title)} ({'; '.join(told)})"


def _plain(text: str) -> str:
    """Text that stays text: in one line, its marks taken as letters."""
    return " ".join(text.split()).translate(_MARKS)
