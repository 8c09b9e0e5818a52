"""`kubectl gpu completion`: scripts with which shells complete the command line of kubectl-gpu."""

import argparse
from typing import Final

_SCRIPTS: Final = {
    "bash": """\
_kubectl_gpu() {
    local line output typed cut=""
    local -a words
    line="${COMP_LINE:0:COMP_POINT}"
    read -ra words <<<"$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    typed="${words[-1]}"
    # Bash treats the text after an = as a separate word.
    [[ "$typed" == *=* && "$COMP_WORDBREAKS" == *=* ]] && cut="${typed%%=*}="
    output="$(kubectl-gpu __complete "${words[@]:1}" 2>/dev/null)" || return
    COMPREPLY=()
    if [[ "${output##*:}" == 0 ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$typed")
        return
    fi
    while IFS= read -r line; do
        line="${line%%$'\\t'*}"
        [[ "$line" == :* ]] || COMPREPLY+=("${line#"$cut"}")
    done <<<"$output"
}
complete -F _kubectl_gpu kubectl-gpu
""",
    "zsh": """\
_kubectl_gpu() {
    local -a lines offered
    local line
    lines=("${(@f)$(kubectl-gpu __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${lines[-1]}" == ":0" ]]; then
        _files
        return
    fi
    for line in "${(@)lines[1,-2]}"; do
        offered+=("${${line%%$'\\t'*}//:/\\\\:}${${line#*$'\\t'}:+:${line#*$'\\t'}}")
    done
    _describe 'kubectl-gpu' offered
}
compdef _kubectl_gpu kubectl-gpu
""",
    "fish": """\
function __kubectl_gpu
    set -l words (commandline -opc) (commandline -ct)
    kubectl-gpu __complete $words[2..-1] 2>/dev/null | string match -v -r '^:[0-9]+$'
end
complete -c kubectl-gpu -f -a '(__kubectl_gpu)'
""",
}


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[arguments.shell], end="")
    return 0
