"""Estimates of a training as requests; they import no torch before they run (`estimate` has what they do).

Plan("mdlm-owt", gpus=8, device="h100").run()
PlanTable("mdlm-1", gpus=8).run()
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zellige.base.errors import InputError
from zellige.base.requests import Request, alone, declared, option
from zellige.training.requests import Training, training_of_json

if TYPE_CHECKING:
    from .estimate import Budget, TableBudget


_gpus = partial(option, "number of GPUs that share the batch", default=1, minimum=1)
_device = partial(
    option, "GPU model; b200, h200, h100, h100-pcie, a100, a100-40, l40s, l4, rtx4090 or mi300x", default="h100"
)
_mfu = partial(
    option, "fraction of the GPU's peak speed that is reached; above 0, at most 1", default=0.4, above=0, maximum=1
)
_price = partial(option, "price of one GPU hour, in any currency", default=None, minimum=0)


@declared
class Plan(Request["Budget"]):
    """Memory, speed, hours and cost of a training on GPUs that are not at hand. Nothing is trained or read."""

    returns = "zellige.plugins.studies.plan.estimate:Budget"

    training: Any = option(
        "a Training, or the name of a recipe or a method", default=None, hidden=True, read=training_of_json
    )
    gpus: int = _gpus()
    device: str = _device()
    mfu: float = _mfu()
    price: float | None = _price()
    vocabulary: int | None = option("size of the vocabulary (default: the recipe's)", default=None, minimum=2)

    def run(self) -> "Budget":
        """Count a step of the training, and return what all of them take."""
        from zellige.papers.recipes import RECIPES
        from zellige.training.device import DEVICES

        from .estimate import budget_of

        if self.training is None:
            raise InputError("`training` is not given; name a recipe or a method, e.g. mdlm-owt")
        device, training = DEVICES[self.device], Training.of(self.training).filled()
        vocabulary, recipe = self.vocabulary, RECIPES.get(training.recipe)
        if vocabulary is None and recipe is not None and training.data == recipe.data:
            vocabulary = recipe.vocabulary
        if vocabulary is None:
            raise InputError("plan reads no data; give the size of its vocabulary, e.g. `vocabulary` 50257 for gpt2")
        budget = budget_of(training.config, vocabulary, self.gpus, device, self.mfu)
        return budget.made_by(replace(self, training=training, vocabulary=vocabulary))


@declared
class PlanTable(Request["TableBudget"]):
    """Memory, hours and cost of each recipe of a paper's table, on GPUs that are not at hand."""

    returns = "zellige.plugins.studies.plan.estimate:TableBudget"

    table: str = option("name of a table (zellige list tables)", default="", hidden=True)
    gpus: int = _gpus()
    device: str = _device()
    mfu: float = _mfu()
    price: float | None = _price()

    def run(self) -> "TableBudget":
        """Plan each recipe once; one that cannot be planned has the reason in its place."""
        from zellige.papers.tables import TABLES

        from .estimate import Budget, TableBudget

        if not self.table:
            raise InputError("`table` is not given; name one of zellige list tables, e.g. mdlm-1")
        budgets, reasons = dict[str, Budget](), dict[str, str]()
        for recipe in TABLES[self.table].recipes:
            try:
                budgets[recipe] = Plan(recipe, self.gpus, self.device, self.mfu, self.price).run()
            except InputError as reason:
                reasons[recipe] = str(reason)
        return TableBudget(self.table, budgets, reasons, request=self)


plan = alone(Plan, "plan")
