"""The response is JSON that obeys a schema."""

import json

from lightrft_ray.rewards.ready_made.answers import tagged_or_all


def json_schema(response: str, reference: str) -> float:
    """1 where the answer is JSON that is valid under the reference, a JSON schema; else 0.

    The answer is the ``<answer>`` tag's text, or the whole response, with or without a ```` ```json
    ```` fence around it. Raises ValueError for a reference that is no schema.
    """
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        schema = json.loads(reference)
        validator = validator_for(schema)
        validator.check_schema(schema)
    except (json.JSONDecodeError, SchemaError) as error:
        raise ValueError(f"the reference is no JSON schema: {error}") from error
    try:
        answer = json.loads(_unfenced(tagged_or_all(response)))
    except json.JSONDecodeError:
        return 0.0
    return float(validator(schema).is_valid(answer))


def _unfenced(text: str) -> str:
    lines = text.split("\n")
    is_fenced = len(lines) > 2 and lines[0] in ("```", "```json") and lines[-1] == "```"
    return "\n".join(lines[1:-1]) if is_fenced else text
