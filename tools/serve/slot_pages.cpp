// POST /slots/ID?action=save, restore or erase.
#include "tools/serve/router.h"

namespace ks::serve
{

using jinja::Value;

static HttpError seat_action(Seats& seats, Seat& seat, const std::string& action,
                             const std::string& path, const std::string& name, Json& json)
{
    if (seat.answer)
        return {409, "invalid_request_error", "busy", "the slot is answering a request", ""};
    const Clock::time_point begin = Clock::now();
    const uint32_t n_tokens = seat.session ? seat.session->n_tokens() : 0;
    if (action == "erase") {
        seats.clear(seat);
        json.set("n_erased", n_tokens);
        return {};
    }
    uint64_t n_bytes = 0;
    Status status;
    if (action == "save") {
        if (!seat.session) return bad_field("id_slot", "the slot is empty");
        status = seats.save(seat, path, &n_bytes);
        json.set({{"filename", name}, {"n_saved", n_tokens}, {"n_written", n_bytes}});
        json.set("timings", Json::object({{"save_ms", ms_between(begin, Clock::now())}}));
    } else {
        status = seats.restore(seat, path, &n_bytes);
        json.set({{"filename", name},
                  {"n_restored", status.ok() ? seat.session->n_tokens() : 0},
                  {"n_read", n_bytes}});
        json.set("timings", Json::object({{"restore_ms", ms_between(begin, Clock::now())}}));
    }
    if (status.ok()) return {};
    return {400, "invalid_request_error", "bad_file", status.message(), "filename"};
}

// The name of a file in the folder of the server.
static HttpError read_name(const std::string& text, std::string* name)
{
    Value body;
    if (HttpError error = parse_body(text, &body)) return error;
    Fields fields(body);
    fields.text("filename", name);
    if (fields.error()) return fields.error();
    const bool is_plain = !name->empty() && name->size() <= 200 && (*name)[0] != '.' &&
                          name->find_first_of(std::string_view("/\\\0", 3)) == name->npos;
    if (is_plain) return {};
    return bad_field("filename", "filename: expected a name of at most 200 bytes without a folder, "
                                 "found '" +
                                     printable(*name, 60) + "'");
}

HttpError Router::slot_action(const std::shared_ptr<Exchange>& exchange)
{
    const std::shared_ptr<Engine> engine = std::atomic_load(&m_engine);
    const std::string id = without_v1(exchange->path()).substr(7),
                      action = exchange->query("action");
    if (id.empty() || id.size() > 3 || id.find_first_not_of("0123456789") != id.npos ||
        uint32_t(std::stoi(id)) >= m_info.n_sessions)
        return bad_field("id_slot",
                         "the path: expected a slot below " + std::to_string(m_info.n_sessions));
    const uint32_t index = uint32_t(std::stoi(id));
    if (action != "save" && action != "restore" && action != "erase")
        return bad_field("action", "action: expected save, restore or erase");
    std::string name;
    if (action != "erase") {
        if (m_options.slot_folder.empty())
            return {501, "not_supported_error", "endpoint_off",
                    "this server was started without --slot-save-path", ""};
        if (const HttpError wrong = read_name(exchange->body, &name)) return wrong;
    }
    const std::string path = m_options.slot_folder + "/" + name;
    HttpError error;
    Json json = Json::object({{"id_slot", index}});
    engine->run_between_steps([&](Seats& seats) {
        error = seat_action(seats, seats.all()[index], action, path, name, json);
    });
    if (error) return error;
    exchange->answer(200, json.text());
    return {};
}

} // namespace ks::serve
