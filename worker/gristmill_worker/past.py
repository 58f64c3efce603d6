"""What became of attempts that no processor holds any more: a cancel may still ask for them."""

from __future__ import annotations

from collections import OrderedDict, deque

KEPT_ANSWERS = 20_000
KEPT_HISTORIES = 8


class Past:
    """Remembers, for a while, how the agent answers for an attempt."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._histories: deque[bytes] = deque(maxlen=KEPT_HISTORIES)

    def note(self, task: str, attempt: int, answer: str) -> None:
        """From now on this is the answer: `canceled` of what was given back, `failed` of what has an outcome."""
        self._answers[task, attempt] = answer
        if len(self._answers) > KEPT_ANSWERS:
            self._answers.popitem(last=False)

    def bury(self, history: bytes) -> None:
        """The rows (`board.row_text`) of a processor that is dead: their outcomes are on the way, unless noted."""
        self._histories.append(history.rstrip(b"\0"))

    def noted(self, task: str, attempt: int) -> str:
        """The answer that was noted; an empty string when there is none."""
        return self._answers.get((task, attempt), "")

    def answer(self, task: str, attempt: int) -> str:
        """The answer, or an empty string when this attempt was never here, as far as can be told. It takes a while."""
        if known := self.noted(task, attempt):
            return known
        row = b'["%b",%d,' % (task.encode(), attempt)
        return "failed" if any(row in history for history in self._histories) else ""
