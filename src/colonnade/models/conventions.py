"""What scikit-learn's tools ask of any model: its parameters by name, its tags, and whether it is fitted."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Self

from colonnade.errors import StudyError
from colonnade.models import notebook


class ParameterError(StudyError, ValueError):
    """A parameter that a model does not have; scikit-learn's tools expect a ValueError."""


class Conventions:
    """A model that ``sklearn.base.clone``, ``ParameterGrid`` and ``check_is_fitted`` can work with.

    The parameters are those of the constructor, which stores each of them unchanged. No parameter has parameters of
    its own: a model that is a parameter of another model is fitted already.
    """

    kind: ClassVar[str]
    feature_names_in_: list[str]
    many_classes: ClassVar[bool] = False
    """Whether a label of more than two classes can be learned."""
    later: ClassVar[frozenset[str]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor as they are now; ``deep`` changes nothing."""
        found = {name: getattr(self, name) for name in self.defaults()}
        defaults = self.defaults() if self.later else {}
        return {name: value for name, value in found.items() if name not in self.later or value != defaults[name]}

    def set_params(self, **params: Any) -> Self:
        """Replace some parameters; the learned attributes stay until the next fit."""
        known = self.defaults()
        if unknown := [name for name in params if name not in known]:
            raise ParameterError(
                f"{type(self).__name__} has no parameter {', '.join(unknown)}; its parameters are "
                f"{', '.join(known)} [ST075]"
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """All parameters by name with their defaults; ``inspect.Parameter.empty`` where one must be given."""
        found = inspect.signature(cls.__init__).parameters
        return {name: parameter.default for name, parameter in found.items() if name != "self"}

    @property
    def n_features_in_(self) -> int:
        """How many encoded columns the model was fitted with."""
        return len(self.feature_names_in_)

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        return f"learned from {self.n_features_in_} encoded columns"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    @property
    def _estimator_type(self) -> str | None:
        """The kind of estimator; scikit-learn reads it here before version 1.6, and from the tags since then."""
        return None

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"non_deterministic": True, "requires_y": False}

    def __sklearn_tags__(self) -> Any:
        """Tags for scikit-learn from 1.6 on."""
        # Imported here because importing scikit-learn is slow.
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags, TransformerTags

        kind = self._estimator_type
        return Tags(
            estimator_type=kind or ("transformer" if hasattr(self, "transform") else None),
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags() if hasattr(self, "transform") else None,
            classifier_tags=ClassifierTags(multi_class=self.many_classes) if kind == "classifier" else None,
            regressor_tags=RegressorTags() if kind == "regressor" else None,
            non_deterministic=True,
            input_tags=InputTags(two_d_array=False),
        )

    def _repr_html_(self) -> str:
        return notebook.model(type(self).__name__, self.get_params(), self.defaults())
