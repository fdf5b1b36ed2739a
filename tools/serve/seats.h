// Places for conversations, and the choice of the one that goes on with a request.
#pragma once

#include "tools/serve/generation.h"
#include "tools/serve/parking.h"

namespace ks::serve
{

struct Seat {
    uint32_t index = 0;
    std::unique_ptr<Session> session; // null: free
    Conversation conversation;
    Chain chain; // of the messages in the text; empty: another text
    std::string name, hint;
    bool parked = false;   // its file has the whole text
    ChainHash file = {};   // of the last turn
    ChainHash older = {};  // of the turn before: a client may ask again for the last answer
    ChainHash before = {}; // file of the text before the last answer
    Clock::time_point last_use;
    std::unique_ptr<Generation> answer; // null: idle
    std::vector<uint32_t> unread;       // the end of the last answer, read when the text goes on
    std::vector<TextRange> messages;    // of the prompt, and the answers
};

struct SeatOptions {
    std::string chat_template;
    int park_after = 30; // seconds; -1: only if the seat is needed
};

class Seats
{
public:
    Status open(std::shared_ptr<Model> model, Parking parking, const SeatOptions& options);

    bool has_idle(int64_t index) const; // index -1: any
    // Begins to answer a task in an idle seat. On failure the task is as before.
    HttpError begin(Task&& task);
    // The prompt was read, and no token of the answer: an evicting cache could not go back to here
    // later, so its text is parked.
    void keep_prompt(Seat& seat);
    // The answer of a seat has ended; complete: nobody cancelled it, and it did not fail.
    std::unique_ptr<Generation> end(Seat& seat, bool complete);
    void clear(Seat& seat);
    // Session files of an idle seat.
    Status save(Seat& seat, const std::string& path, uint64_t* n_bytes);
    Status restore(Seat& seat, const std::string& path, uint64_t* n_bytes);
    // Parks one conversation that is idle for long; all: each one. False: there is none.
    bool park_one(bool all);

    std::vector<Seat>& all() { return m_seats; }
    const std::vector<Seat>& all() const { return m_seats; }
    const Parking& parking() const { return m_parking; }
    const Conversation* chat_template() const { return m_has_template ? &m_template : nullptr; }
    const Status& template_status() const { return m_template_status; }
    uint64_t n_reread() const { return m_n_reread; } // tokens of known texts read again

private:
    struct Choice {
        Seat* seat = nullptr;
        Seat* copies = nullptr; // the seat whose text it takes over
        size_t n_on_disk = 0;   // messages of a file that it loads; 0: none
    };
    Choice choose(const Chain& chain, const Task& task);
    Seat* most_equal(const Chain& chain, size_t* n);
    Seat* victim(const Seat* but);
    Status renew(Seat& seat);
    void park(Seat& seat);
    void read_end(Seat& seat);
    HttpError begin_chat(Task&& task);
    HttpError begin_text(Task&& task);
    const char* take_text(const Choice& choice, const Chain& chain);
    void note_messages(Seat& seat, const PromptStep& step);
    AnswerState state_of(const Seat& seat) const;
    Result<PromptStep> step_of(Seat& seat, const Chain& chain, const Task& task, bool keeps_answers,
                               const char** from);
    void name(Seat& seat, const Chain& chain, const Task& task, const PromptStep& step);

    std::shared_ptr<Model> m_model;
    Parking m_parking;
    SeatOptions m_options;
    std::vector<Seat> m_seats;
    Conversation m_template;
    bool m_has_template = false;
    Status m_template_status;
    uint64_t m_n_reread = 0;
};

} // namespace ks::serve
