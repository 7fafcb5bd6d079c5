"""The scripted replies of the models of `serve --demo`, by prompt, turn and step. All names are invented."""

from typing import Any, Final

from lockstitch.cli.demo.evaluations import answer_to
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import text_of

Replies = list[Any]


def calls(text: str | None, *wanted: tuple[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a reply that calls tools."""
    body = {"text": text} if text else {}
    return {**body, "calls": [{"name": name, "input": values} for name, values in wanted], **fields}


STORIES: Final[dict[str, list[Replies]]] = {
    "I was charged twice for order 10482": [
        [
            calls(
                "I’ll look at the order and at both charges first.",
                ("lookup_order", {"order_id": "10482"}),
                ("list_charges", {"order_id": "10482", "since": "2026-03-01", "limit": 20}),
                thinking="Two charges seven seconds apart look like a double submit, not two orders. "
                "I should see the order and the charges before promising anything.",
            ),
            calls(
                "You were charged twice: `ch_81F` and `ch_81G`, €129.00 each, seven seconds apart, for one parcel. "
                "I’m preparing the refund of the second one, and a colleague checks it at the same time.",
                ("create_thread", {"goal": "Fraud check, order 10482", "agent": "fraud", "wait_for_completion": False}),
                (
                    "update_tasks",
                    {
                        "tasks": [
                            {"description": "Find the order and its charges", "status": "completed"},
                            {"description": "Decide whether it is a duplicate", "status": "completed"},
                            {"description": "Fraud check above €100", "status": "in_progress"},
                            {"description": "Refund the second charge", "status": "in_progress"},
                            {"description": "Change the delivery address", "status": "pending"},
                            {"description": "Write to Ada", "status": "pending"},
                        ]
                    },
                ),
                thinking="Same card, same amount, seven seconds apart, one shipment: a duplicate. Policy asks for a "
                "fraud check above €100, so I delegate that to the fraud agent and ask for approval at the same time.",
                fail="overloaded",
                times=1,
                message="529 overloaded",
            ),
            calls(
                "I need an approval for the refund, and your new address.",
                (
                    "refund_payment",
                    {
                        "charge": "ch_81G",
                        "amount": "€129.00",
                        "to": "Visa ending 4417",
                        "reason": "duplicate of ch_81F",
                    },
                ),
                ("ask_address", {"reason": "The parcel of order 10482 has not left yet."}),
            ),
            "Done: **€129.00** are on their way back to your card, and the parcel goes to your new address.\n\n"
            "- refund `re_5521`, three to five working days\n- parcel leaves tomorrow morning",
        ],
        ["You are welcome, Ada. Anything else about order 10482?"],
    ],
    "Fraud check, order 10482": [
        [
            calls("Two signals first.", ("score_device", {"device": "d_55e1"}), ("ip_history", {"ip": "81.2.69.160"})),
            "The device has been seen on 14 orders since 2024, all paid and kept. The two charges share one session "
            "and one basket, which points to a double submit. **No sign of fraud.**",
        ]
    ],
    "Renew the wildcard certificate": [
        [
            calls(
                "It ends in nine days. I order a new one.",
                ("order_certificate", {"name": "*.example.org"}),
            ),
            calls(
                "Now the proof in DNS.", ("dns_update", {"record": "_acme-challenge.example.org", "value": "k3J…x0"})
            ),
            "The certificate for `*.example.org` is renewed until June.",
        ]
    ],
    "Redlines for the Aldermoor lease": [
        [
            calls("I read both drafts side by side.", ("read_document", {"name": "aldermoor-lease-v4.docx"})),
            calls(
                None,
                (
                    "ask_for_input",
                    {
                        "question": "Which law should govern the lease, Scotland’s or England’s?",
                        "options": ["Scotland", "England"],
                    },
                ),
            ),
            "The redlines are ready: seven changes, the governing law as you said.",
        ]
    ],
    "Onboard Ines Duarte": [
        [
            calls("I prepare her account.", ("make_account", {"name": "Ines Duarte", "team": "Research"})),
            calls("Her bank details only she can give.", ("collect_bank_details", {"person": "Ines Duarte"})),
            "Ines is on the payroll from the first of the month.",
        ]
    ],
    "A ranked review of 5 suppliers": [
        [
            calls(
                "I split this: one researcher for each supplier.",
                *(
                    ("create_thread", {"goal": f"Review supplier {name}", "agent": "researcher"})
                    for name in ("Norrland Timber", "Kestrel Polymers", "Ota Bearings", "Vela Coatings", "Brae Steel")
                ),
                (
                    "update_tasks",
                    {
                        "tasks": [
                            {"description": "Research each supplier", "status": "in_progress"},
                            {"description": "Compare prices and risks", "status": "pending"},
                            {"description": "Write the review for the board", "status": "pending"},
                        ]
                    },
                ),
            ),
            calls("I wait for them.", ("wait_for_threads", {})),
            calls(
                None,
                ("complete_thread", {"result_summary": "Ranked: Norrland, Ota, Brae, Kestrel; Vela is not available."}),
            ),
        ]
    ],
    "Review supplier Vela Coatings": [
        [{"fail": "request", "message": "400: the page of Vela Coatings is 214,880 tokens"}]
    ],
    "Review supplier": [
        [
            calls("I look for filings and news.", ("web_search", {"query": "supplier filings 2026"})),
            calls(
                None, ("fetch_page", {"url": "https://registry.example/filings"}), ("web_search", {"query": "recalls"})
            ),
            calls(None, ("complete_thread", {"result_summary": "Recommend: keep, renegotiate freight."})),
        ]
    ],
    "Translate the release notes": [
        [
            calls("I read the notes.", ("read_document", {"name": "release-notes.md"})),
            {"fail": "request", "message": "400: context of 214,880 tokens is longer than 200,000"},
        ]
    ],
    "Postmortem draft": [
        [
            calls("I gather what is known.", ("web_search", {"query": "checkout latency 11 March"})),
            calls("Now the draft.", ("write_document", {"name": "postmortem-0311.md", "words": 1140})),
            calls(
                None,
                (
                    "complete_thread",
                    {"result_summary": "Draft of 1,140 words, 9 links checked, stored as postmortem-0311.md"},
                ),
            ),
        ]
    ],
    "Nightly triage": [
        [
            *(
                calls(
                    f"Issues {4400 + 8 * step} to {4407 + 8 * step}: I read, label and close what is a duplicate.",
                    ("label_issue", {"number": 4400 + 8 * step, "label": "bug"}),
                    ("label_issue", {"number": 4403 + 8 * step, "label": "question"}),
                )
                for step in range(40)
            ),
            calls(None, ("complete_thread", {"result_summary": "214 issues read, 61 labelled, 12 closed."})),
        ]
    ],
    "Watch the tide tables": [["The 06:00 table is out: high water at 09:42, 1.9 m."]],
    "Where is my parcel": [
        [
            calls("Let me see.", ("lookup_order", {"order_id": "10391"})),
            "It left Malmö this morning and arrives tomorrow before noon.",
        ]
    ],
    "Can I change my plan": [["Yes: under *Account*, then *Plan*. The difference is refunded by the day."]],
    "The invoice has the wrong name": [
        [
            calls(
                "I look at the invoice.",
                ("lookup_order", {"order_id": "10117"}),
                ("list_charges", {"order_id": "10117"}),
            ),
            calls("I create it again.", ("write_document", {"name": "invoice-10117.pdf", "words": 120})),
            "Here is the invoice with the right name.",
        ]
    ],
}

_OTHERWISE: Final = (
    "I am a scripted model of the demonstration, so I only know the stories of this office. But what you wrote is in "
    "the record already, before I was asked: kill this server and start it again, and it is still here."
)


def reply(request: ModelRequest) -> Any:
    """Return the reply to a request. The first user text selects the story."""
    if request.purpose is not None:
        return str(request.purpose)
    first = next((text for message in request.messages if (text := text_of(message))), "")
    if (answer := answer_to(first, request.system)) is not None:
        return answer
    for begins, turns in STORIES.items():
        if begins in first:
            replies = turns[(request.turn - 1) % len(turns)] if request.turn <= len(turns) else [_OTHERWISE]
            return replies[request.step - 1] if request.step <= len(replies) else _OTHERWISE
    return _OTHERWISE
