"""The wording of the demo's customer-service intents; the held-out phrasings occur in validation and test alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How customers put one intent. Actions continue "I want to …"; statements stand alone."""

    actions: tuple[str, ...]
    statements: tuple[str, ...]
    held_out_actions: tuple[str, ...]
    held_out_statements: tuple[str, ...]


INTENTS: dict[str, Wording] = {
    "cancel_order": Wording(
        actions=(
            "cancel my order",
            "cancel order {number}",
            "call off my purchase",
            "stop my order before it ships",
            "withdraw the order from {day}",
            "cancel the {item} that I ordered",
            "undo my purchase of the {item}",
        ),
        statements=(
            "I no longer want the {item}, do not send it",
            "I ordered the {item} by mistake, please do not ship it",
            "please make sure that order {number} never leaves the warehouse",
        ),
        held_out_actions=("scrap the order for the {item}", "drop my order altogether", "annul purchase {number}"),
        held_out_statements=(
            "I changed my mind, no need to dispatch the {item}",
            "forget about the {item}, I do not need it any more",
        ),
    ),
    "change_address": Wording(
        actions=(
            "change my delivery address",
            "update the address on order {number}",
            "send the {item} to a different address",
            "correct the street in my delivery details",
            "have the {item} delivered to my office instead",
            "enter a new shipping address",
            "change where order {number} goes",
        ),
        statements=(
            "I moved house and the old address is still in my profile",
            "the postcode on order {number} is wrong",
            "I will be at my parents' place, the {item} should go there",
        ),
        held_out_actions=(
            "redirect the {item} to my new flat",
            "amend the house number for delivery",
            "get the {item} brought to my neighbour's place",
        ),
        held_out_statements=(
            "I live somewhere else now, the {item} must go to the new place",
            "there is a typo in my street name",
        ),
    ),
    "track_order": Wording(
        actions=(
            "track my order",
            "know where my {item} is",
            "see the delivery status of order {number}",
            "find out when the {item} will arrive",
            "follow my parcel",
            "check whether order {number} has shipped",
            "get the tracking number for my {item}",
        ),
        statements=(
            "where is my {item}",
            "my {item} should have been here on {day} and it is still not here",
            "when does order {number} get here",
        ),
        held_out_actions=(
            "locate my package",
            "learn how far away my {item} is",
            "have an estimate of when the courier comes",
        ),
        held_out_statements=("I am still waiting for the {item} to turn up", "has the {item} been dispatched yet"),
    ),
    "refund_status": Wording(
        actions=(
            "know when I get my money back",
            "check the status of my refund",
            "find out if my refund was paid",
            "ask about the refund for the {item}",
            "see why my refund is late",
            "know how long the refund for order {number} takes",
            "receive the refund you promised",
        ),
        statements=(
            "I sent the {item} back on {day} and my refund is not in my account",
            "where is my refund",
            "the money for the returned {item} never came",
        ),
        held_out_actions=(
            "learn when I will be reimbursed",
            "find out what happened to the repayment for the {item}",
            "have an update on my reimbursement",
        ),
        held_out_statements=(
            "you got the {item} back weeks ago and I still have not seen a cent",
            "my bank shows no repayment from you",
        ),
    ),
    "return_item": Wording(
        actions=(
            "return the {item}",
            "send the {item} back",
            "get a return label for order {number}",
            "know how to return something",
            "give back the {item} because it does not fit",
            "start a return for order {number}",
            "bring the {item} back to you",
        ),
        statements=(
            "the {item} is not what I expected, how do I send it back",
            "the {item} fits badly and I want to return it",
            "is it too late for me to return the {item} from {day}",
        ),
        held_out_actions=(
            "ship the {item} back to your warehouse",
            "hand the {item} back",
            "post the unwanted {item} back to you",
        ),
        held_out_statements=(
            "I dislike the {item}, which form do I need to send it back",
            "I do not want to keep the {item}, it is too small",
        ),
    ),
    "damaged_item": Wording(
        actions=(
            "report a broken {item}",
            "report that the {item} arrived damaged",
            "complain about a defective {item}",
            "report a fault in the {item}",
            "tell you that the {item} does not work",
            "claim for damage to the {item}",
            "show you photos of the damaged {item}",
        ),
        statements=(
            "the {item} arrived broken",
            "my {item} has a big scratch and does not work",
            "the {item} from order {number} came with a crack in it",
        ),
        held_out_actions=(
            "let you know that the {item} is in pieces",
            "inform you that my {item} is faulty",
            "make a claim because the {item} got smashed",
        ),
        held_out_statements=(
            "I opened the box and the {item} was shattered",
            "the {item} stopped functioning after one day",
        ),
    ),
    "payment_problem": Wording(
        actions=(
            "report that I was charged twice",
            "find out why my card was declined",
            "dispute a charge on my card",
            "know why my payment fails",
            "understand why you took the wrong amount",
            "report a double payment for order {number}",
            "solve a problem with my payment for the {item}",
        ),
        statements=(
            "you charged me twice for the {item}",
            "my card is rejected at checkout",
            "the payment for order {number} does not go through",
        ),
        held_out_actions=(
            "question an amount that you debited",
            "find out why checkout refuses my credit card",
            "tell you that I was overcharged for the {item}",
        ),
        held_out_statements=(
            "the same sum left my bank account two times",
            "I cannot pay for the {item}, the transaction keeps failing",
        ),
    ),
    "reset_password": Wording(
        actions=(
            "reset my password",
            "get a new password",
            "log in to my account again",
            "recover access to my account",
            "unlock my account",
            "change a password that I have forgotten",
            "receive the password email again",
        ),
        statements=(
            "I forgot my password",
            "I cannot log in to my account",
            "my account is locked after too many attempts",
        ),
        held_out_actions=(
            "regain access to my profile",
            "have my login accepted again",
            "restore my login details",
        ),
        held_out_statements=(
            "the site says my credentials are wrong",
            "I do not remember my login and I am locked out",
        ),
    ),
    "invoice_request": Wording(
        actions=(
            "get an invoice for order {number}",
            "download the receipt for the {item}",
            "receive a copy of my bill",
            "have an invoice with my company name",
            "get a receipt for my tax return",
            "ask for the invoice for the {item}",
            "have the bill for order {number} sent by email",
        ),
        statements=(
            "there was no invoice in the parcel with the {item}",
            "my accountant needs the receipt for the {item}",
            "where can I find my invoice for order {number}",
        ),
        held_out_actions=(
            "obtain proof of purchase for the {item}",
            "be sent the paperwork for the {item} for my accounts",
            "print a VAT document for order {number}",
        ),
        held_out_statements=(
            "my employer only pays if I have a document that shows what the {item} cost",
            "I lost the bill that came with the {item}",
        ),
    ),
    "speak_to_agent": Wording(
        actions=(
            "speak to a person",
            "talk to a human agent",
            "be put through to an employee",
            "chat with someone from support",
            "get a call from your team",
            "speak with a manager",
            "talk to somebody who can help me",
        ),
        statements=(
            "give me a real person",
            "I do not want to talk to a bot",
            "is there someone I can call",
        ),
        held_out_actions=(
            "have a conversation with a member of your staff",
            "be connected to a representative",
            "reach a living human being",
        ),
        held_out_statements=(
            "enough of this robot, let me talk with somebody",
            "what is the phone number of your helpdesk",
        ),
    ),
}

ITEMS = (
    "blue jacket",
    "coffee machine",
    "headset",
    "desk lamp",
    "water bottle",
    "tablet",
    "backpack",
    "office chair",
    "kettle",
    "phone case",
)
HELD_OUT_ITEMS = ("vacuum cleaner", "wool sweater", "keyboard", "bookshelf", "rain coat")
DAYS = ("Monday", "Tuesday", "Thursday", "Friday", "last week", "the 3rd of May")

OPENERS = (
    "",
    "",
    "",
    "hello, ",
    "hi there, ",
    "good morning, ",
    "hey ",
    "excuse me, ",
    "dear team, ",
    "hi, quick question: ",
)
CLOSERS = (
    "",
    "",
    "",
    "",
    " thanks",
    " thank you very much",
    " please",
    " as soon as possible",
    " I have been a customer for years",
    " can you help me",
)
FRAMES = (
    "I want to {action}",
    "I would like to {action}",
    "can I {action}",
    "how do I {action}",
    "I need to {action}",
    "please help me to {action}",
    "is it possible to {action}",
    "I am trying to {action}",
    "{action} please",
    "what must I do to {action}",
)
HELD_OUT_FRAMES = ("could you tell me how to {action}", "I was hoping to {action}", "is there a way to {action}")

CONTRASTS = (
    "I do not want to {other}, I want to {action}",
    "I want to {action}, not to {other}",
    "this is not about how to {other}, I need to {action}",
    "I already managed to {other}, now I would like to {action}",
    "please do not make me {other}, I only want to {action}",
    "your bot thinks that I want to {other} but I need to {action}",
    "how do I {action} without having to {other}",
)
"""Sentences that hold the words of two intents; only their order and the negation say which one is meant."""
HELD_OUT_CONTRASTS = (
    "rather than {other} I would prefer to {action}",
    "I have no wish to {other}, my aim is to {action}",
    "nobody asked you to {other}, I am writing to {action}",
)
