"""Random JSON schemas within what --json-schema supports, and a validator of answers."""

import re

WORDS = ["id", "name", "kind", "a", "ab", "note", 'q"t', "é", "x y"]
FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "uuid": r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}",
    "ipv4": r"\d+\.\d+\.\d+\.\d+",
}
PATTERNS = [
    "^[A-Z]{2}\\d{3}$",
    "^(yes|no)!?$",
    "^\\w+@\\w+\\.(com|org)$",
    "^[^ ]{1,5}$",
    "^a.?\\\\$",
]


def integer_schema(random):
    schema = {"type": "integer"}
    low = random.randint(-2000, 2000)
    if random.random() < 0.6:
        schema[random.choice(["minimum", "exclusiveMinimum"])] = low
    if random.random() < 0.6:
        schema[random.choice(["maximum", "exclusiveMaximum"])] = low + random.randint(2, 3000)
    return schema


def number_schema(random):
    schema = {"type": "number"}
    if random.random() < 0.5:
        schema["minimum"] = random.randint(-20, 20) / 2
        schema["maximum"] = schema["minimum"] + random.randint(2, 40) / 2
    return schema


def string_schema(random):
    schema = {"type": "string"}
    kind = random.random()
    if kind < 0.2:
        schema["format"] = random.choice(list(FORMATS))
    elif kind < 0.4:
        schema["pattern"] = random.choice(PATTERNS)
    else:
        schema["minLength"] = random.randint(0, 3)
        schema["maxLength"] = schema["minLength"] + random.randint(0, 12)
    return schema


def array_schema(random, depth):
    schema = {"type": "array", "minItems": random.randint(0, 2)}
    schema["maxItems"] = schema["minItems"] + random.randint(0, 2)
    if random.random() < 0.3:
        schema["prefixItems"] = [random_schema(random, depth + 1) for _ in range(2)]
    if random.random() < 0.9 or schema["minItems"] > 2:
        schema["items"] = random_schema(random, depth + 1)
    return schema


def object_schema(random, depth):
    names = random.sample(WORDS, random.randint(0, 4))
    schema = {
        "type": "object",
        "properties": {name: random_schema(random, depth + 1) for name in names},
        "required": [name for name in names if random.random() < 0.5],
    }
    if random.random() < 0.4:
        schema["additionalProperties"] = random.choice([False, {"type": "boolean"}])
    return schema


def random_schema(random, depth=0):
    kind = random.random() * (1 if depth < 3 else 0.5)
    if kind < 0.1:
        return {"enum": random.sample(["red", "é\n", 0, -1.5, None, True, [1, "a"], {"k": 1}], 3)}
    if kind < 0.15:
        return {"const": random.choice(["x", 7, False])}
    if kind < 0.2:
        return {"type": random.choice(["null", "boolean", ["integer", "null"]])}
    if kind < 0.3:
        return integer_schema(random)
    if kind < 0.35:
        return number_schema(random)
    if kind < 0.5:
        return string_schema(random)
    if kind < 0.6:
        return {"anyOf": [random_schema(random, depth + 1) for _ in range(2)]}
    if kind < 0.65:
        return {"oneOf": [string_schema(random), integer_schema(random), {"type": "null"}]}
    if kind < 0.7:
        both = [object_schema(random, depth + 1), object_schema(random, depth + 1)]
        for schema in both:
            schema.pop("additionalProperties", None)
        second = both[1]["properties"]
        for name in set(both[0]["properties"]) & set(second):
            del second[name]
        both[1]["required"] = [name for name in both[1]["required"] if name in second]
        return {"allOf": both}
    if kind < 0.8:
        return array_schema(random, depth)
    return object_schema(random, depth)


def with_recursion(random):
    """A schema whose objects may contain the whole again."""
    schema = object_schema(random, 1)
    schema.pop("additionalProperties", None)
    schema["properties"]["next"] = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
    schema["properties"]["leaf"] = {"$ref": "#/$defs/leaf"}
    schema["$defs"] = {"leaf": random_schema(random, 3)}
    return schema


TYPES = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: type(v) is int or (type(v) is float and v.is_integer()),
    "number": lambda v: type(v) in (int, float),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def equal(a, b):
    return type(a) is type(b) and a == b


def is_valid(value, schema, root):
    """Whether a value matches a schema of this generator."""

    def valid(v, s):
        return is_valid(v, s, root)

    def object_fits(value):
        properties = schema.get("properties", {})
        others = [v for k, v in value.items() if k not in properties]
        return (
            all(valid(value[k], s) for k, s in properties.items() if k in value)
            and all(name in value for name in schema.get("required", []))
            and all(valid(v, schema.get("additionalProperties", True)) for v in others)
        )

    def array_fits(value):
        prefix = schema.get("prefixItems", [])
        return (
            schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            and all(valid(v, s) for v, s in zip(value, prefix))
            and all(valid(v, schema.get("items", True)) for v in value[len(prefix) :])
        )

    def text_fits(value):
        return (
            schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
            and bool(re.search(schema.get("pattern", ""), value))
            and bool(re.fullmatch(FORMATS.get(schema.get("format"), "(?s:.*)"), value))
        )

    def number_fits(value):
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and schema.get("exclusiveMinimum", float("-inf")) < value
            and value < schema.get("exclusiveMaximum", float("inf"))
        )

    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target = root
        for key in schema["$ref"].split("/")[1:]:
            target = target[key]
        return valid(value, target)
    types = schema.get("type", list(TYPES))
    fits = {dict: object_fits, list: array_fits, str: text_fits, int: number_fits}
    fits[float] = number_fits
    return (
        any(TYPES[t](value) for t in ([types] if isinstance(types, str) else types))
        and any(equal(value, v) for v in schema.get("enum", [value]))
        and equal(value, schema.get("const", value))
        and all(valid(value, s) for s in schema.get("allOf", []))
        and any(valid(value, s) for s in schema.get("anyOf", [True]))
        and sum(valid(value, s) for s in schema.get("oneOf", [True])) == 1
        and fits.get(type(value), lambda _: True)(value)
    )
