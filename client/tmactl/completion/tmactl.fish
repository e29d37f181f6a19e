# fish completion for tmactl, as `tmactl completion fish` prints it.

# The command, if there is one yet.
function __tmactl_command
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --socket --server-user --timeout --color
                set -e words[1]
            case '-*'
            case '*'
                echo $words[1]
                return
        end
        set -e words[1]
    end
end

function __tmactl_is_bare
    not __tmactl_command | string length -q
end

function __tmactl_is
    string match -q -- $argv[1] (__tmactl_command)
end

complete -c tmactl -f
complete -c tmactl -l socket -r -F -d "where tmad listens"
complete -c tmactl -l server-user -x -a '(__fish_complete_users)' -d "whom tmad may run as, by name or uid, besides root and this user"
complete -c tmactl -l timeout -x -d "give up when a call takes longer, milliseconds"
complete -c tmactl -l json -d "output for programs"
complete -c tmactl -s q -l quiet -d "no progress, nothing on success"
complete -c tmactl -l color -x -a 'auto always never' -d "colours"
complete -c tmactl -s h -l help -d "show this help"
complete -c tmactl -l version -d "show the version"
complete -c tmactl -n __tmactl_is_bare -a bench -d "Load the service and measure requests a second and their latency."
complete -c tmactl -n __tmactl_is_bare -a completion -d "Print the completion of tmactl for a shell."
complete -c tmactl -n __tmactl_is_bare -a copy -d "Copy an .npy file, permuted and padded, as numpy.transpose and numpy.pad would."
complete -c tmactl -n __tmactl_is_bare -a explain -d "Say how the service would move an array, and what ruled out a better way."
complete -c tmactl -n __tmactl_is_bare -a help -d "Show what a command takes."
complete -c tmactl -n __tmactl_is_bare -a info -d "Show what the service is and allows"
complete -c tmactl -n __tmactl_is_bare -a ping -d "Ask whether the service answers."
complete -c tmactl -n __tmactl_is_bare -a regions -d "List the memory that the service has mapped, and whose it is."
complete -c tmactl -n __tmactl_is_bare -a stats -d "Show the service's counters"
complete -c tmactl -n __tmactl_is_bare -a top -d "Show who uses the service, and how much, again and again."
complete -c tmactl -n '__tmactl_is bench' -l kind -x -a 'ping copy transpose transform' -d "what is asked"
complete -c tmactl -n '__tmactl_is bench' -l connections -x -d "open at once"
complete -c tmactl -n '__tmactl_is bench' -l pipeline -x -d "requests under way on each"
complete -c tmactl -n '__tmactl_is bench' -l duration -x -d "seconds"
complete -c tmactl -n '__tmactl_is bench' -l requests -x -d "end after so many"
complete -c tmactl -n '__tmactl_is bench' -l prepared -d "as runs of a plan that each connection prepares once"
complete -c tmactl -n '__tmactl_is bench' -l size -x -d "of what copy and transpose read"
complete -c tmactl -n '__tmactl_is bench' -l dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type"
complete -c tmactl -n '__tmactl_is bench' -l shape -x -d "extents, outermost first"
complete -c tmactl -n '__tmactl_is bench' -l permute -x -d "dimension d of the output is dimension P[d] of the input"
complete -c tmactl -n '__tmactl_is bench' -l pad -x -d "elements added before:after each dimension of the output"
complete -c tmactl -n '__tmactl_is bench' -l mode -x -a 'constant edge reflect symmetric wrap' -d "what is added"
complete -c tmactl -n '__tmactl_is bench' -l value -x -d "of mode constant"
complete -c tmactl -n '__tmactl_is completion' -x -a 'bash zsh fish'
complete -c tmactl -n '__tmactl_is copy' -x -a '(__fish_complete_suffix .npy)'
complete -c tmactl -n '__tmactl_is copy' -l permute -x -d "dimension d of the output is dimension P[d] of the input"
complete -c tmactl -n '__tmactl_is copy' -l pad -x -d "elements added before:after each dimension of the output"
complete -c tmactl -n '__tmactl_is copy' -l mode -x -a 'constant edge reflect symmetric wrap' -d "what is added"
complete -c tmactl -n '__tmactl_is copy' -l value -x -d "of mode constant"
complete -c tmactl -n '__tmactl_is copy' -l no-clobber -d "fail when DST is there, and leave it as it is"
complete -c tmactl -n '__tmactl_is copy' -l memory -x -d "for what is under way, files may be larger"
complete -c tmactl -n '__tmactl_is explain' -x -a '(__fish_complete_suffix .npy)'
complete -c tmactl -n '__tmactl_is explain' -l dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type"
complete -c tmactl -n '__tmactl_is explain' -l shape -x -d "extents, outermost first"
complete -c tmactl -n '__tmactl_is explain' -l permute -x -d "dimension d of the output is dimension P[d] of the input"
complete -c tmactl -n '__tmactl_is explain' -l pad -x -d "elements added before:after each dimension of the output"
complete -c tmactl -n '__tmactl_is explain' -l mode -x -a 'constant edge reflect symmetric wrap' -d "what is added"
complete -c tmactl -n '__tmactl_is explain' -l value -x -d "of mode constant"
complete -c tmactl -n '__tmactl_is explain' -l engine -x -a 'cpu cuda' -d "plan for this engine, which need not be the service's"
complete -c tmactl -n '__tmactl_is explain' -l svg -r -F -d "draw the tile that the plan moves and how it lies in shared memory"
complete -c tmactl -n '__tmactl_is help' -x -a 'bench completion copy explain help info ping regions stats top'
complete -c tmactl -n '__tmactl_is top' -s d -l interval -x -d "seconds between two looks"
complete -c tmactl -n '__tmactl_is top' -s n -l count -x -d "end after so many looks"
complete -c tmactl -n '__tmactl_is top' -l once -d "one look"
complete -c tmactl -n '__tmactl_is top' -l sort -x -a 'rate bytes p50 p99 errors mapped uid pid' -d "what the table is sorted by"
