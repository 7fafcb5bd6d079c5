"""Letters: what comes for a thread from those who do not hold it."""

from datetime import datetime
from uuid import UUID

from lockstitch.backend import Receipt
from lockstitch.backends.files import document, heads, layout, rules, stitching, tables
from lockstitch.backends.files.transaction import Transaction
from lockstitch.errors import Conflict, NotFound
from lockstitch.records import Letter
from lockstitch.records.letter import receive


def deliver(transaction: Transaction, letter: Letter, now: datetime) -> Receipt:
    """Hand a letter over: into the log when nobody holds the thread, else into its inbox; a second one does nothing."""
    head = tables.head(transaction, letter.thread_id)
    if head is None:
        raise NotFound(f"There is no thread {letter.thread_id} to deliver to.")
    first = tables.same_letter(transaction, letter)
    if first is not None:
        return Receipt(first.position, head.delivered, head.cancel_requested, new=False, delivery_id=first.id)
    arrival = receive(head, letter, now)
    if arrival.letter is None:
        return Receipt(None, head.delivered, head.cancel_requested, new=False)
    write_delivery(transaction, arrival.letter)
    after = head.changed(**arrival.head)
    if arrival.stitch is not None:
        rules.check_stitch(arrival.stitch)
        rules.require_run(transaction, head.id, arrival.stitch.run_id)
        stitching.append(transaction, [arrival.stitch])
        if after.status == "waiting":
            transaction.show(head.id)
    heads.write_head(transaction, head, after)
    woken = after.status == "pending" and head.status != "pending"
    return Receipt(arrival.letter.position, after.delivered, head.cancel_requested, woken=woken, delivery_id=letter.id)


def take(transaction: Transaction, thread_id: UUID, letter_id: UUID, position: int) -> None:
    """Note that a letter became a stitch. It stays, without its entry, to recognise a second delivery."""
    letter = tables.letter(transaction, thread_id, letter_id)
    if letter is None or letter.position is not None:
        raise Conflict(f"Letter {letter_id} is no longer in the inbox; nothing was written.", thread_id=thread_id)
    write_delivery(transaction, letter.changed(entry=None, position=position))


def write_delivery(transaction: Transaction, letter: Letter) -> None:
    transaction.put(layout.letter(letter), document.encode_record(letter))
