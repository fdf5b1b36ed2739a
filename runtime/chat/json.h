// JSON, from untrusted text and back, and values in Python's form.
#pragma once

#include "runtime/chat/value.h"

namespace ks::jinja
{

struct JsonLimits {
    uint64_t bytes = 64 << 20;
    uint64_t values = kMaxItems;
    int depth = kMaxDepth;
};

// Keeps the order of keys and tells 1 from 1.0. Invalid UTF-8 and lone surrogates become U+FFFD.
Result<Value> parse_json(string_view text, const JsonLimits& limits = {});

struct WriteStyle {
    bool python = false; // as repr() does, else as json.dumps() does
    bool ascii = false;
    bool sorted = false; // by key
    bool lines = false;  // one item per line
    string indent;       // per level
    string comma = ", ";
    string colon = ": ";
};

// Refuses (Failure) what JSON lacks. What parse_json returned can always be written.
string write(const Value& value, const WriteStyle& style = {});
string write_number(double number, bool python);

} // namespace ks::jinja
