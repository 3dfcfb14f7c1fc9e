"""How a mixture's parameters follow from opened sums: by variational inference, or by expectation maximisation.

Every participant holds an equal learner and gives it the same opened numbers. An owner asks it for the densities of its
rows and for what is summed with the responsibilities as weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture.cells import Cells
from colonnade.kinds.synthesis.mixture.components import LIMIT
from colonnade.kinds.synthesis.mixture.expectation import Expectation
from colonnade.kinds.synthesis.mixture.fitted import FittedMixture
from colonnade.kinds.synthesis.mixture.inference import Posterior, Variational
from colonnade.kinds.synthesis.mixture.learner import Linear
from colonnade.kinds.synthesis.mixture.model import Matrix, MixtureModel


class _Learner(ABC):
    """What both have in common; ``owners`` are the names of the owners of ``model.owns``."""

    def __init__(self, owners: Sequence[str], model: MixtureModel) -> None:
        self.owners, self.model = tuple(owners), model
        self._read: tuple[Matrix, Cells] | None = None

    def _cells(self, place: int, rows: Matrix) -> Cells:
        """What an owner's components look at; densities and derivatives of a batch are asked for one after another."""
        if self._read is None or self._read[0] is not rows:
            self._read = rows, self.model.owns[place].read(rows)
        return self._read[1]

    @property
    @abstractmethod
    def parameters(self) -> Matrix:
        """Where the next sums are asked for."""

    @property
    @abstractmethod
    def posterior(self) -> Posterior:
        """What is known after the rounds so far."""

    @property
    def log_weights(self) -> NDArray[np.float64]:
        """Logarithms of the weights of the components, (K,)."""
        return np.asarray(log_softmax(np.clip(self.parameters[:, 0], -LIMIT, LIMIT)))

    def log_densities(self, owner: str, rows: Matrix) -> Matrix:
        """For encoded rows of one owner the logarithm of each component's density, (n, K)."""
        place = self.owners.index(owner)
        return self.model.owns[place].log_densities(
            self._cells(place, rows), self.parameters[:, self.model.parts[place]]
        )

    @property
    def fitted(self) -> FittedMixture:
        """The mixture that was found."""
        return FittedMixture(self.owners, self.model, self.posterior)


class VariationalLearner(_Learner):
    """Variational inference: derivatives of the log densities are summed.

    Where they are linear in statistics of the rows, an owner may be asked for the statistics instead (``linear``).
    """

    def __init__(self, owners: Sequence[str], variational: Variational, *, linear: bool = False) -> None:
        super().__init__(owners, variational.model)
        if linear and not all(own.linear for own in variational.model.owns):
            raise StudyError(
                "derivatives of Gaussian columns are not linear in statistics; sum derivatives instead [ST497]"
            )
        self._linear = linear
        self.variational = variational
        self._drawn = variational.draw()
        self._told: Posterior | None = None

    @property
    def parameters(self) -> Matrix:
        """The parameters that this round drew."""
        return self._drawn

    @property
    def posterior(self) -> Posterior:
        """The posterior so far, or the one that was taken over."""
        return self._told or self.variational.posterior

    def vectors(self, owner: str, rows: Matrix) -> NDArray[np.float64]:
        """Derivatives of the owner's log densities, (n, K, q), or the statistics in which they are linear."""
        place = self.owners.index(owner)
        if self._linear:
            return self.model.owns[place].linear_statistics(self._cells(place, rows))
        return self.model.owns[place].derivatives(self._cells(place, rows), self._drawn[:, self.model.parts[place]])

    def linear(self, owner: str) -> Linear:
        """How the derivatives of one owner's log densities follow from its statistics, at this round's parameters."""
        place = self.owners.index(owner)
        return Linear(*self.model.owns[place].linear_slopes(self._drawn[:, self.model.parts[place]]))

    def step(self, sums: Matrix) -> None:
        """The next parameters, from the noisy sums of one round, (K, 1 + q of all owners)."""
        self.variational.step(sums)
        self._drawn = self.variational.draw()

    @property
    def state(self) -> NDArray[np.float64]:
        """Means and deviations of the posterior, as one array."""
        found = self.posterior
        return np.concatenate([found.mean.reshape(-1), found.deviation.reshape(-1)])

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take over a posterior."""
        mean, deviation = state.reshape(2, self.model.components, self.model.width)
        self._told = Posterior(np.clip(mean, -LIMIT, LIMIT), np.clip(deviation, 0.0, 1.0))


class ExpectationLearner(_Learner):
    """Expectation maximisation: statistics of the rows are summed, which do not depend on the parameters."""

    def __init__(self, owners: Sequence[str], expectation: Expectation) -> None:
        super().__init__(owners, expectation.model)
        self.expectation = expectation

    @property
    def parameters(self) -> Matrix:
        """The parameters of this round."""
        return self.expectation.parameters

    @property
    def posterior(self) -> Posterior:
        """The parameters, without a deviation."""
        return Posterior(self.parameters.copy(), np.zeros_like(self.parameters))

    def vectors(self, owner: str, rows: Matrix) -> NDArray[np.float64]:
        """Statistics of the owner's rows, (n, q)."""
        return self.expectation.statistics[self.owners.index(owner)].read(rows)

    def linear(self, owner: str) -> Linear:
        """Statistics are summed as they are, so nobody asks for this."""
        raise StudyError("expectation maximisation has no derivatives; sum statistics instead [ST498]")

    def step(self, sums: Matrix) -> None:
        """The next parameters, from the noisy sums of one round, (K, 1 + q of all owners)."""
        self.expectation.step(sums)

    @property
    def state(self) -> NDArray[np.float64]:
        """The parameters, as one array."""
        return self.parameters.reshape(-1).copy()

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take over parameters."""
        self.expectation.parameters = np.clip(state.reshape(self.model.components, self.model.width), -LIMIT, LIMIT)
