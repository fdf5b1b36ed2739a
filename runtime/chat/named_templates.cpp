// Chat templates for files without one, chosen by name.
#include "runtime/chat/chat_format.h"

namespace ks
{

// Templates without a system turn put the system prompt in front of the first user message.
#define FOLD_SYSTEM                                                                                \
    "{%- set ns = namespace(system='') %}"                                                         \
    "{%- for m in messages %}"                                                                     \
    "{%- if m.role == 'system' %}{% set ns.system = m.content %}{% endif %}"                       \
    "{%- endfor %}"

static const NamedTemplate kTemplates[] = {
    {"chatml", R"({%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},
    {"gemma", FOLD_SYSTEM R"({{- bos_token }}
{%- for m in messages %}
{%- if m.role != 'system' %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
{%- if ns.system %}{{ ns.system + '\n\n' }}{% set ns.system = '' %}{% endif %}
{{- m.content|trim + '<end_of_turn>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})"},
    {"llama-2", FOLD_SYSTEM R"({%- for m in messages %}
{%- if m.role == 'user' %}
{{- bos_token + '[INST] ' }}
{%- if ns.system %}
{{- '<<SYS>>\n' + ns.system + '\n<</SYS>>\n\n' }}{% set ns.system = '' %}
{%- endif %}
{{- m.content|trim + ' [/INST]' }}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content|trim + ' ' + eos_token }}
{%- endif %}
{%- endfor %})"},
    {"llama-3", R"({{- bos_token }}
{%- for m in messages %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content|trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
    {"mistral", FOLD_SYSTEM R"({{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'user' %}
{{- '[INST] ' }}
{%- if ns.system %}{{ ns.system + '\n\n' }}{% set ns.system = '' %}{% endif %}
{{- m.content + ' [/INST]' }}
{%- elif m.role == 'assistant' %}{{ m.content + eos_token }}
{%- endif %}
{%- endfor %})"},
    {"phi-3", R"({%- for m in messages %}
{{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"vicuna", R"({{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}
{%- else %}{{ 'ASSISTANT: ' + m.content + eos_token + '\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})"},
    {"zephyr", R"({%- for m in messages %}
{{- '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
};
#undef FOLD_SYSTEM

// Hyphens and dots do not matter.
static std::string plain(std::string_view name)
{
    std::string out;
    for (char c : name)
        if (c != '-' && c != '.') out += c;
    return out;
}

const NamedTemplate* find_named_template(std::string_view name)
{
    for (const NamedTemplate& row : kTemplates)
        if (plain(row.name) == plain(name)) return &row;
    return nullptr;
}

std::string template_names()
{
    std::string names;
    for (const NamedTemplate& row : kTemplates)
        names += (names.empty() ? "" : ", ") + std::string(row.name);
    return names;
}

} // namespace ks
