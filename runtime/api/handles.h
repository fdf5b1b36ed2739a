// What the handles of the C API point to, and how its calls report errors.
#pragma once

#include "runtime/api/conversation.h"
#include "runtime/api/knapsack.h"
#include "runtime/chat/constraint.h"

#include <cstdio>
#include <exception>
#include <new>

struct ks_model {
    std::shared_ptr<ks::Model> model;
};

struct ks_session {
    ks_model model;
    std::unique_ptr<ks::Session> session;
    std::unique_ptr<ks::Sampler> sampler;
    std::unique_ptr<ks::Conversation> conversation; // null: no call has needed it yet
    std::unique_ptr<ks::Constraint> constraint;     // null until a grammar is set
    ks::Grammar grammar;
    bool constrains = false;
    char error[512] = ""; // not a std::string: reporting an exhausted heap must not allocate
};

inline int say(ks::Code code, const char* sentence, char* error, size_t error_bytes)
{
    if (error && error_bytes) snprintf(error, error_bytes, "%s", sentence);
    return int(code);
}

// Runs `body` and converts exceptions of the standard library to codes.
template <class F>
int guarded(char* error, size_t error_bytes, F&& body)
{
    try {
        const ks::Status status = body();
        return say(status.code(), status.message().c_str(), error, error_bytes);
    } catch (const std::bad_alloc&) {
        return say(ks::Code::no_fit, "the system has no memory left", error, error_bytes);
    } catch (const std::exception& e) { // the system cannot start a thread
        char sentence[200];
        snprintf(sentence, sizeof sentence, "the system refused: %s", e.what());
        for (char* c = sentence; *c; c++) *c = *c < ' ' || *c > '~' ? '?' : *c;
        return say(ks::Code::device, sentence, error, error_bytes);
    } catch (...) {
        return say(ks::Code::usage, "a callback has thrown an exception", error, error_bytes);
    }
}

template <class F>
int guarded(ks_session* session, F&& body)
{
    const int code = guarded(session->error, sizeof session->error, body);
    if (code == KS_INTERRUPTED) session->session->clear_cancel();
    return code;
}
