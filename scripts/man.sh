#!/bin/sh
# Writes the manual page from the program's --help.  scripts/man.sh PROGRAM >knapsack.1
set -eu
unset KNAPSACK_MODEL KNAPSACK_DEVICE KNAPSACK_MEMORY

# Converts the text of one --help to roff. "  NAMES" begins an item.
# The item's meaning follows after two spaces, or on the next lines with an indent.
to_roff() {
    awk '
        { gsub(/\\/, "\\e"); gsub(/-/, "\\-"); gsub(/\047/, "\\(aq"); gsub(/`/, "\\(ga") }
        NR == 1 { sub(/^[^:]*: /, ""); if (!top) print; next }
        /^usage: / { if (!top) print ".PP\n.B " substr($0, 8); next }
        /^exit: / { print ".SH EXIT STATUS"; sub(/^exit: /, "") }
        /^$/ { item = lines = 0; next }
        /^  [^ ]/ {
            cut = match(substr($0, 3), /  +/)
            print ".TP\n.B " (cut ? substr($0, 3, cut - 1) : substr($0, 3))
            if (cut) print substr($0, cut + 2 + RLENGTH)
            item = 1
            next
        }
        { if (item) sub(/^ +/, ""); else if (!lines++) print ".PP" }
        { print "\\&" $0 }' top="$1"
}

help=$("$1" --help)
cat <<END
.TH KNAPSACK 1 "" "$("$1" --version | head -n 1)" "User commands"
.nh
.ad l
.SH NAME
$(printf '%s\n' "$help" | sed -n '1s/: / \\- /p')
.SH SYNOPSIS
.B knapsack
.I COMMAND
[options]
.SH COMMANDS
$(printf '%s\n' "$help" | to_roff 1)
.SH ENVIRONMENT
A variable in parentheses after an option is read if the option is not given.
END
for command in $(printf '%s\n' "$help" | awk '/^  [a-z]/ { print $1 }'); do
    printf '.SH COMMAND %s\n' "$command"
    "$1" "$command" --help | to_roff 0
done
