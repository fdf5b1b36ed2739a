"""A schema and a tool whose answers are short, with a check of the answers."""

import json

CITIES = ["Paris", "Rome", "Oslo"]
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": CITIES},
        "warm": {"type": "boolean"},
        "days": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "warm", "days"],
    "additionalProperties": False,
}


def fits_schema(text):
    j = json.loads(text)
    return (
        set(j) == {"city", "warm", "days"}
        and j["city"] in CITIES
        and isinstance(j["warm"], bool)
        and 1 <= len(j["days"]) <= 3
        and all(d in (1, 2, 3) for d in j["days"])
    )


def json_schema(schema, strict=True):
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": strict},
    }


def one_tool(choices=CITIES):
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": choices}},
        "required": ["city"],
        "additionalProperties": False,
    }
    function = {"name": "get_weather", "description": "The weather", "parameters": parameters}
    return {"type": "function", "function": function}
