"""How the demo begins: the model of text that comes with Zellige writes for a few seconds, before the demo trains its own."""

import time

from ..show.terminal import Terminal

NAME, SECONDS = "tales", 10.0


def show_shipped(terminal: Terminal, seed: int = 0, name: str = NAME, seconds: float = SECONDS) -> int:
    """Watch a shipped model write, one text after another until `seconds` have passed; returns how many texts that were.

    0 where this installation has no such model. Where nothing can move, the texts alone are shown.
    """
    from ..models import shipped

    if name not in shipped.names():
        return 0
    from ..models.frames import Frame, collect
    from ..models.model import load
    from ..models.sample import watch
    from .viewer import Viewer

    card, texts = shipped.card(name), 0
    with terminal.waiting("loading"):
        model = load(name)
    terminal.say(f"First '{name}', a model that comes with Zellige: {card['what']}")
    began = time.perf_counter()
    while not texts or time.perf_counter() - began < seconds:
        viewer = Viewer(terminal)

        def see(frame: Frame, viewer: Viewer = viewer) -> None:
            if terminal.motion or frame.step == frame.steps:
                viewer(frame)

        try:
            collect(watch(model, seed=seed + texts), see)
        finally:
            viewer.close()
        texts += 1
    terminal.say(f"More of it: zellige sample {name} --watch, zellige play {name}. Now one is trained here.\n")
    return texts
