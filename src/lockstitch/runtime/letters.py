"""Taking letters in: what others sent to a thread while it was held finds the run that it is for."""

from lockstitch.records import Entry, Json, Letter
from lockstitch.runtime.journal import Journal


async def take_letters(journal: Journal, *, resting: bool = False, ending: bool = False) -> None:
    """Take what others sent into the log: answers at once, results of children where no call is open, or where the
    end of the run is going to answer it.

    Messages for the next run stay where they are until this one has ended. What else cannot enter yet is looked at
    again; but where the thread is about to rest, only by who takes it next.
    """
    ledger = journal.ledger
    async with ledger.taking:
        letters = await journal.letters_waiting()
        entries = {letter.id: letter.opened() for letter in letters}
        ledger.queued = [letter for letter in letters if entries[letter.id].type == "input"]
        taken = [letter for letter in letters if _may_enter(journal, entries[letter.id], ending)]
        if len(taken) + len(ledger.queued) < len(letters) and not resting:
            # It is for a run beside this one, which has not come as far.
            ledger.letters = True
        if not taken:
            return
        await journal.commit(taken=[_placed(journal, letter) for letter in taken])


def _may_enter(journal: Journal, entry: Entry, ending: bool) -> bool:
    if entry.type in ("tool_call", "permission"):
        return True
    if entry.type == "input":
        return False
    receiver = _receiver(journal, entry)
    lanes = [one for one in _lanes(journal) if one.lane == receiver.lane and not (ending and one is journal)]
    return not any(one.in_use or any(call.state != "answered" for call in one.situation.calls) for one in lanes)


def _placed(journal: Journal, letter: Letter) -> Letter:
    """A letter as part of the run that it is for, where its sender did not know which that was; an answer that came too
    late, when its call was answered or its run over, as no more than a note."""
    entry = letter.opened()
    receiver = _receiver(journal, entry)
    if entry.type in ("tool_call", "permission") and not _is_open(receiver, entry):
        said = f"An answer to call {entry.call_id} came when it was answered already."
        data: Json = {"type": "LateAnswer", "message": said, "fatal": False}
        late = Entry(id=entry.id, type="error", run_id=receiver.open.id, lane=receiver.lane, data=data)
        return letter.changed(entry=late.as_json())
    if entry.run_id is not None:
        return letter
    return letter.changed(entry=entry.changed(run_id=receiver.open.id, lane=receiver.lane).as_json())


def _receiver(journal: Journal, entry: Entry) -> Journal:
    """The run that an entry is for: its own if it is open, else the one that the thread is driven for."""
    lanes = _lanes(journal)
    return next((one for one in lanes if one.run is not None and one.run.id == entry.run_id), lanes[0])


def _lanes(journal: Journal) -> list[Journal]:
    return [one for one in journal.ledger.lanes if isinstance(one, Journal)]


def _is_open(receiver: Journal, answer: Entry) -> bool:
    calls = receiver.situation.calls
    return any(call.id == answer.call_id and call.state != "answered" for call in calls)
