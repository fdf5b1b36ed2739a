#ifdef KS_HTTP
#include "tools/serve/http_head.h"

#include "runtime/base/status.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <microhttpd.h>

namespace ks::serve
{

static constexpr size_t kMostHeaders = 64, kMostHeadBytes = 16 << 10, kMostTarget = 8 << 10;

// A field of the head, where the parser left it in its buffer.
struct Field {
    const char *name, *value;
};

static MHD_Result add_field(void* out, MHD_ValueKind, const char* name, const char* value)
{
    static_cast<std::vector<Field>*>(out)->push_back({name, value ? value : ""});
    return MHD_YES;
}

// Whether every line of the head ends with CR LF and has no NUL and no continuation. The parser of
// libmicrohttpd before 0.9.77 accepts all of that; it ends texts in place with NULs, so the next
// field begins two bytes behind the last.
static bool has_plain_lines(const char* version, const std::vector<Field>& fields)
{
#if MHD_VERSION >= 0x00097701
    (void)version;
    (void)fields;
    return true;
#else
    const char* end = version + strlen(version);
    for (const Field& field : fields) {
        if (field.name != end + 2) return false;
        end = field.value + strlen(field.value);
    }
    return !end[0] && !end[1] && !end[2] && !end[3]; // the empty line follows
#endif
}

// Leaves the path and the query as they are.
size_t keep_escapes(void*, MHD_Connection*, char* text)
{
    return strlen(text);
}

// False: an escape is wrong, or it is that of NUL.
static bool unescape(const char* from, std::string* out)
{
    for (out->clear(); *from; from++) {
        if (*from != '%') {
            *out += *from;
            continue;
        }
        const char digits[3] = {from[1], from[1] ? from[2] : char(0), 0};
        char* end = nullptr;
        const long code = strtol(digits, &end, 16);
        if (!isxdigit(uint8_t(digits[0])) || end != digits + 2 || code == 0) return false;
        *out += char(code);
        from += 2;
    }
    return true;
}

static HttpError check_head(const Exchange::Head& head, size_t n_headers, size_t n_bytes,
                            uint64_t* length)
{
    const char* const kInvalid = "invalid_request_error";
    if (n_headers > kMostHeaders || n_bytes > kMostHeadBytes)
        return {431, kInvalid, "head_too_large",
                "the head has " + std::to_string(n_headers) + " fields and " +
                    std::to_string(n_bytes) + " bytes; at most " + std::to_string(kMostHeaders) +
                    " and " + std::to_string(kMostHeadBytes) + " are read",
                ""};
    if (head.path.size() + head.query.size() > kMostTarget)
        return {414, kInvalid, "head_too_large", "the path has more than 8192 bytes", ""};
    const auto length_field = head.headers.find("content-length"),
               coding = head.headers.find("transfer-encoding");
    *length = 0;
    if (coding != head.headers.end() &&
        (length_field != head.headers.end() || strcasecmp(coding->second.c_str(), "chunked") != 0))
        return {400, kInvalid, "bad_framing",
                "expected either Content-Length or Transfer-Encoding: chunked", ""};
    if (length_field == head.headers.end()) return {};
    const std::string& digits = length_field->second;
    if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos ||
        digits.size() > 19)
        return {400, kInvalid, "bad_framing",
                "Content-Length: expected a number, found '" + printable(digits, 40) + "'", ""};
    *length = std::stoull(digits);
    return {};
}

HttpError check_length(uint64_t length, const HttpOptions& options)
{
    if (length <= options.body_bytes) return {};
    return {413, "invalid_request_error", "body_too_large",
            "the body has " + std::to_string(length) + " bytes, at most " +
                std::to_string(options.body_bytes) + " are read",
            ""};
}

// The head as the parser gives it. The error is that of its form.
HttpError read_head(MHD_Connection* mhd, const char* url, const char* version, Exchange::Head* head,
                    uint64_t* length)
{
    const HttpError bad_head = {400, "invalid_request_error", "bad_framing", "", ""};
    std::vector<Field> fields, query;
    MHD_get_connection_values(mhd, MHD_HEADER_KIND, add_field, &fields);
    MHD_get_connection_values(mhd, MHD_GET_ARGUMENT_KIND, add_field, &query);
    for (const Field& field : query)
        head->query +=
            (head->query.empty() ? "" : "&") + std::string(field.name) + "=" + field.value;
    HttpError error;
    if (!has_plain_lines(version, fields)) {
        error = bad_head;
        error.message = "the head: expected lines that end with CR LF, without continuations";
    }
    if (!unescape(url, &head->path)) {
        error = bad_head;
        error.message = "the path has a wrong escape";
    }
    size_t n_bytes = 0;
    for (const Field& field : fields) {
        std::string name = field.name;
        for (char& byte : name) byte = char(tolower(uint8_t(byte)));
        n_bytes += name.size() + strlen(field.value) + 4;
        const bool is_new = head->headers.emplace(name, field.value).second;
        const bool has_controls =
            std::any_of(field.value, field.value + strlen(field.value), [](char byte) {
                return (uint8_t(byte) < ' ' && byte != '\t') || byte == 0x7f;
            });
        if (name.find_first_of(" \t") != name.npos || has_controls ||
            (!is_new &&
             (name == "content-length" || name == "host" || name == "transfer-encoding"))) {
            error = bad_head;
            error.message =
                "the field " + printable(name, 40) + " is given twice, or has wrong characters";
        }
    }
    return error ? error : check_head(*head, fields.size(), n_bytes, length);
}

} // namespace ks::serve
#endif
