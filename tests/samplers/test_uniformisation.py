"""Uniformisation: its bounds hold for every network, its grid, and that it has no error."""

import pytest
import torch

from testing.pairs import close, denoiser, generators, genmd4, md4, sedd
from testing.worlds import CTMC as NO_SCHEDULE
from testing.worlds import L, V, data_distribution, five_sigma, generator_matrix, numbers
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Cosine, Exponential, Geometric, Linear, LinearSigma
from zellige.core.matrices import CTMC
from zellige.core.prediction import LeaveOneOut, Mean, restricted, reverse_rate
from zellige.core.process import Mixture, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import TauLDR, build, tauldr_rates
from zellige.nn import Net
from zellige.samplers import Uniformisation, run
from zellige.samplers.uniformisation import bounds, pace, unit_rate

D = torch.float64
PROCESSES = {
    "absorbing": absorbing(V + 1, Cosine(1e-6)),
    "uniform": uniform(V, Linear(1e-6)),
    "any prior": Mixture(torch.tensor([0.2, 0.5, 0.3], dtype=D), Geometric(1e-7, 14.0)),
    "birth and death": CTMC(*tauldr_rates.birth_death(V), LinearSigma(0.0, 14.0)),
    "gaussian": CTMC(*tauldr_rates.gaussian(V, 2.0, 3.0), Exponential(0.5, 100.0)),
}


@pytest.mark.parametrize("name", PROCESSES)
@torch.no_grad()
def test_no_rate_is_above_its_bound(name):
    """For point masses and for distributions drawn at random, of both kinds, at times within the interval; and it is not far
    above."""
    process = PROCESSES[name]
    x, V_ = torch.arange(process.K), int(process.clean.sum())
    distributions = torch.cat((torch.eye(V_, dtype=D), numbers(20, V_, seed=4) ** 8))
    mu = torch.zeros(len(distributions), process.K, dtype=D)
    mu[:, process.clean] = distributions / distributions.sum(-1, keepdim=True)
    mu = mu[:, None].expand(-1, process.K, -1)
    for high, ratio in ((5.0, 1.4), (0.5, 1.4), (1e-3, 1.4), (1e-5, 1.2)):
        bound, largest = (
            bounds(process, *(torch.tensor(u, dtype=D) for u in (high / ratio, high))),
            torch.zeros(process.K),
        )
        for part in torch.linspace(0, 1, 9, dtype=D):
            t = process.schedule.inverse((-torch.tensor(high, dtype=D) * ratio**-part).exp())
            time, state = t.expand(len(mu), process.K), x.expand(len(mu), -1)
            for kind in (restricted, LeaveOneOut):
                total = reverse_rate(kind(process, mu, state, time)).sum(-1) / process.schedule.beta(t)
                assert (total <= bound * (1 + 1e-6)).all(), (name, high, kind)
                largest = torch.maximum(largest, total.amax(0))
        assert (bound <= 2.5 * largest + 1e-12).all(), (name, high)


def test_rates_for_each_unit_of_sigma():
    for process in PROCESSES.values():
        x, t = torch.arange(process.K), torch.tensor(0.3, dtype=D)
        close(process.schedule.beta(t) * unit_rate(process, x), process.rate_into(x, t))
        slow, fast = pace(process)
        assert slow > 0
        exit = float(-process.rate(t).diagonal().min() / process.schedule.beta(t))
        assert exit <= fast * (1 + 1e-9)
    close(torch.tensor(pace(PROCESSES["birth and death"])[0], dtype=D), torch.tensor(1.0, dtype=D))  # 2 - 2 cos(pi/3)


def test_its_grid():
    """From where few positions remember to where few hold noise, in the ends of the schedule too; beyond, a jump at each
    end."""
    times = Uniformisation().times(denoiser(PROCESSES["absorbing"]), 5)
    assert (times[0], times[-1], len(times)) == (PRIOR, CLEAN, 67)  # 64 intervals are the fewest
    alpha = PROCESSES["absorbing"].schedule.alpha(times[1:-1])[:, 0]
    close(alpha[0], torch.tensor(1e-3 / L, dtype=D), rtol=1e-3, atol=0)
    close(1 - alpha[-1], torch.tensor(1e-5 / L, dtype=D), rtol=1e-3, atol=0)
    close(alpha.logit().diff(), alpha.logit().diff()[:1].expand(64), rtol=1e-4, atol=0)
    times = Uniformisation().times(denoiser(uniform(V, Linear(1e-2))), 5)
    assert (times[0], len(times)) == (1.0, 66)  # much is left at t = 1: from there without a jump
    (start, first, *_) = Uniformisation().times(denoiser(absorbing(V + 1, Linear(1e-2))), 5)
    assert start == PRIOR
    close(first, torch.tensor(1 + 1e-2 - 1e-3 / L, dtype=D))  # of the 1e-2 that are left at t = 1


@pytest.mark.parametrize(
    ("name", "predicts"),
    [
        ("absorbing", "mean"), ("uniform", "mean"), ("uniform", "leave_one_out"), ("any prior", "leave_one_out"),
        ("birth and death", "mean"), ("gaussian", "leave_one_out"),
    ],
)  # fmt: skip
@torch.no_grad()
def test_it_has_no_error(name, predicts):
    """The exact network, two tokens: 2,000 samples within 5.5 standard errors of the data (a false alarm: 4e-7)."""
    process = PROCESSES[name]
    method, data = denoiser(process, predicts), exact.embed(process, data_distribution(), L)
    (*_, state) = run(Uniformisation(), method, (2_000, L), generator=torch.Generator().manual_seed(2))
    assert five_sigma(torch.nn.functional.one_hot(exact.index(state.x, process.K), len(data)).double(), data)


@torch.no_grad()
def test_one_position_moves_at_a_time():
    """Within (0, 1), and it is asked about alone; what is given does not move, and the rest has the conditional
    distribution."""
    method = denoiser(PROCESSES["uniform"])
    asked, predict = [], method.predict
    method.predict = lambda x, t, *, at=None, **how: asked.append((t, at)) or predict(x, t, at=at, **how)
    fixed = torch.tensor([1, -1]).expand(3_000, -1)
    (*_, state) = run(Uniformisation(), method, (3_000, L), fixed=fixed, generator=torch.Generator().manual_seed(3))
    assert (state.x[:, 0] == 1).all()
    distribution = data_distribution().reshape(V, V)[1]
    assert five_sigma(torch.nn.functional.one_hot(state.x[:, 1], V).double(), distribution / distribution.sum())
    assert all((at.sum(-1) == 1).all() and (t[:, 0] == CLEAN).all() for t, at in asked)
    assert int(state.calls.sum()) == sum(len(at) for _, at in asked)


@pytest.mark.parametrize("process", ["gaussian", "birth-death"])
@torch.no_grad()
def test_a_method_in_float32(process):
    """Its chain's rates are float32 too, what bounds them is not."""
    chosen = TauLDR.Config(process=process)
    method = build(TauLDR, V, Net(layers=1, hidden=16, heads=2, length=L), chosen, ordered=True)
    draws = []
    for made in (method, method.float()):
        (*_, state) = run(Uniformisation(), made, (50, L), generator=torch.Generator().manual_seed(0))
        draws.append(state.x)
    assert (draws[0] == draws[1]).float().mean() > 0.9  # rounding moves a draw now and then


@torch.no_grad()
def test_a_rate_above_its_bound_is_an_error():
    class Wrong(exact.Denoiser):
        def predict(self, x_t, t, **how):
            pred = super().predict(x_t, t, **how)
            return Mean(pred.process, 3 * pred.mu, pred.x_t, pred.t)  # pyright: ignore

    method = Wrong(PROCESSES["uniform"], data_distribution(), L)
    with pytest.raises(ArithmeticError, match="is above its bound"):
        list(run(Uniformisation(), method, (200, L), generator=torch.Generator().manual_seed(0)))


def test_what_it_refuses():
    for method, why in (
        (sedd(), "needs a prediction that is a distribution, not a score"),
        (genmd4(), "needs one schedule for all rates"),
        (denoiser(NO_SCHEDULE(generator_matrix(V))), "needs one schedule for all rates"),
    ):
        with pytest.raises(InputError, match=f"sampler 'uniformisation' {why}; with "):
            Uniformisation().init(method, (1, L))
    with pytest.raises(InputError, match="`steps` is 0; it must be 1 or more"):
        Uniformisation().times(md4(), 0)
    assert len(Uniformisation().times(md4(), 100)) == 103


@torch.no_grad()
def test_a_row_of_another_time_steps_by_itself():
    """Rows with times of their own: the bound of an interval that holds all of theirs."""
    method, sampler = md4(), Uniformisation()
    t, s = torch.tensor([[0.9], [0.5], [0.9]], dtype=D), torch.tensor([[0.4], [0.1], [CLEAN]], dtype=D)
    state = sampler.init(method, (3, L))
    new = sampler.step(method, state, t, s, generators(0, 1, 2))
    assert (new.x[2] != V).all()
    assert new.x.shape == (3, L)
