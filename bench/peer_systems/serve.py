"""The main loop of a peer system's process: orders in as lines of JSON, answers out."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def serve(carry_out: Callable[[dict[str, Any]], None]) -> None:
    """Carry out orders until standard input ends; answer each, with the error if there was one."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the system prints must not look like an answer
    answers.write('{"ready": true}\n')
    answers.flush()
    for line in sys.stdin:
        answer: dict[str, Any] = {"done": True}
        try:
            carry_out(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
