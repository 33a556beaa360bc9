"""What a load takes, in a process of its own: no more than the weights, read once."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from zellige.data.tokenizer import Integers
from zellige.nn import DiT, Net
from zellige.nn.network import unfilled
from zellige.plugins.published import ddit

ONCE = """
import json, sys, time
from pathlib import Path
import torch, zellige
zellige.load
resident = lambda what: int(Path("/proc/self/status").read_text().split(what + ":")[1].split()[0]) * 1024
Path("/proc/self/clear_refs").write_text("5")
before, began = resident("VmRSS"), time.process_time()
model = zellige.load(sys.argv[1])
seconds = time.process_time() - began
with torch.no_grad():
    total = sum(float(p.sum()) for p in model.method.parameters())
print(json.dumps([seconds, resident("VmHWM") - before, sum(p.numel() * 4 for p in model.method.parameters())]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.long
def test_a_load_takes_the_weights_and_no_more(tmp_path):
    """SEDD's layout, 42M parameters: under 1.2 times their memory, also once every weight was read; nothing is computed."""
    with unfilled():
        network = DiT(Net(2, 384, 6, 128), 50258, time=True)
    with torch.no_grad():
        for p in network.parameters():
            p.data.fill_(0.01)
    model = {"hidden_size": 384, "cond_dim": 128, "length": 128, "n_blocks": 2, "n_heads": 6, "scale_by_sigma": True}
    save_file({ddit.theirs(n): t for n, t in network.state_dict().items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"tokens": 50257, "graph": {"type": "absorb"}, "model": model}))
    Integers(50257).save(tmp_path)
    done = subprocess.run([sys.executable, "-c", ONCE, str(tmp_path)], check=True, capture_output=True, text=True)
    seconds, grown, size = json.loads(done.stdout)
    assert grown < 1.2 * size
    assert seconds < 3
