"""Every error that the engine raises on purpose, one class a cause that a caller may act on.

Messages name the field and the numbers; they never carry prompt text, keys, or paths beyond the one
that the caller gave. The `code` of a class is stable and may be matched by programs; the edges (exit
codes, HTTP statuses, JSONL records) each map it in one table of their own.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all engine errors; `str(error)` is one sentence that is safe to show to the user."""

    code = "engine_error"


class InvalidInputError(EngineError):
    """An argument or field has a value outside its contract. `field` is its name, None if there is none."""

    code = "invalid_input"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ArtifactError(EngineError):
    """The model file cannot be used as the verified artifact it should be."""

    code = "artifact_unreadable"


class LengthMismatchError(ArtifactError):
    """The file's length in bytes is not the expected one."""

    code = "length_mismatch"


class HashMismatchError(ArtifactError):
    """The SHA-256 of the file is not the expected one."""

    code = "hash_mismatch"


class NotGgufError(ArtifactError):
    """The verified bytes are not a GGUF container that this engine reads (magic, version, byte order)."""

    code = "not_gguf"


class TruncatedError(ArtifactError):
    """The header or the tensor data end before the declared lengths do."""

    code = "truncated"


class MalformedGgufError(ArtifactError):
    """A declared count, size, name, type or offset of the GGUF header breaks the format's rules."""

    code = "malformed_gguf"


class LayoutMismatchError(ArtifactError):
    """Tensor offsets agree with none, or with more than one, of the layouts that the types allow."""

    code = "layout_mismatch"


class UnsupportedTypeError(ArtifactError):
    """A tensor has a type that this engine cannot compute with."""

    code = "unsupported_type"


class UnsupportedArchitectureError(ArtifactError):
    """`general.architecture`, or a setting of it, is not one that this engine has a graph for."""

    code = "unsupported_architecture"


class UnsupportedContractError(ArtifactError):
    """The file declares a `prism.*` contract that this engine does not implement."""

    code = "unsupported_contract"


class MetadataError(ArtifactError):
    """A metadata key that the model needs is missing, has the wrong type or an impossible value."""

    code = "bad_metadata"


class UnsupportedTokenizerError(ArtifactError):
    """The tokenizer model or pre-tokenizer that the file names is not implemented."""

    code = "unsupported_tokenizer"


class UnsupportedTemplateError(EngineError):
    """No built-in renderer matches the file's chat template, or it cannot render this conversation."""

    code = "unsupported_template"


class BudgetError(EngineError):
    """Something would need more memory than its stated budget in bytes."""

    code = "budget_exceeded"


class ContextError(EngineError):
    """Prompt and reserved output do not fit the context; all three numbers are in tokens."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, reserved_tokens: int, context: int) -> None:
        super().__init__(
            f"the maximum context length is {context} tokens, but the prompt has {prompt_tokens} "
            f"and {reserved_tokens} are reserved for output"
        )
        self.prompt_tokens = prompt_tokens
        self.reserved_tokens = reserved_tokens
        self.context = context


class CancelledError(EngineError):
    """The request was cancelled; the state is what it was before."""

    code = "cancelled"


class DeadlineError(EngineError):
    """The request's deadline passed; the state is what it was before."""

    code = "deadline_exceeded"


class EngineFaultError(EngineError):
    """The computation itself went wrong (for example, non-finite logits)."""

    code = "engine_fault"


class PoisonedError(EngineFaultError):
    """A state could not be restored after a fault; the runtime refuses further work."""

    code = "poisoned"


class SamplerLostError(EngineFaultError):
    """The state was restored after a failed request but its sampler was not: do not use that one again."""

    code = "sampler_lost"
