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
complete -c tmactl -l socket -r -F -d "where tmad listens, @NAME for an abstract socket"
complete -c tmactl -l server-user -x -a '(__fish_complete_users)' -d "user that tmad may run as, by name or uid, besides root and this user"
complete -c tmactl -l timeout -x -d "give up if a call takes longer, in milliseconds"
complete -c tmactl -l json -d "print JSON, for programs"
complete -c tmactl -s q -l quiet -d "show no progress, and print nothing on success"
complete -c tmactl -s v -l verbose -d "say if there is no service, and this process does its work"
complete -c tmactl -l color -x -a 'auto always never' -d "when to use colour"
complete -c tmactl -s h -l help -d "show this help"
complete -c tmactl -l version -d "show the version"
complete -c tmactl -n __tmactl_is_bare -a bench -d "Load the service, and measure requests per second and their latency."
complete -c tmactl -n __tmactl_is_bare -a completion -d "Print the tmactl completion script for a shell."
complete -c tmactl -n __tmactl_is_bare -a copy -d "Copy an .npy file, permuted, converted and padded as by numpy.transpose, numpy.astype and numpy.pad."
complete -c tmactl -n __tmactl_is_bare -a explain -d "Show how the service would move an array, and what rules out a faster way."
complete -c tmactl -n __tmactl_is_bare -a help -d "Describe a command."
complete -c tmactl -n __tmactl_is_bare -a info -d "Show what the service is and what it allows"
complete -c tmactl -n __tmactl_is_bare -a layouts -d "List the named layouts of KV caches and of blocked tensors."
complete -c tmactl -n __tmactl_is_bare -a ping -d "Check whether the service answers."
complete -c tmactl -n __tmactl_is_bare -a regions -d "List the memory that the service has mapped, and who owns it."
complete -c tmactl -n __tmactl_is_bare -a stats -d "Show the service's counters"
complete -c tmactl -n __tmactl_is_bare -a top -d "Show who uses the service and how much, repeatedly."
complete -c tmactl -n '__tmactl_is bench' -l kind -x -a 'ping copy transpose transform' -d "kind of request"
complete -c tmactl -n '__tmactl_is bench' -l connections -x -d "connections to open"
complete -c tmactl -n '__tmactl_is bench' -l pipeline -x -d "requests under way on each connection"
complete -c tmactl -n '__tmactl_is bench' -l duration -x -d "how long to run, in seconds"
complete -c tmactl -n '__tmactl_is bench' -l requests -x -d "stop after this many requests"
complete -c tmactl -n '__tmactl_is bench' -l prepared -d "run a plan that each connection prepares once"
complete -c tmactl -n '__tmactl_is bench' -l size -x -d "bytes that a copy or transpose reads"
complete -c tmactl -n '__tmactl_is bench' -l src-device -x -d "read memory of this device, by its UUID or its number in tmactl info"
complete -c tmactl -n '__tmactl_is bench' -l dst-device -x -d "write memory of this device, likewise"
complete -c tmactl -n '__tmactl_is bench' -l dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "the same as --from-dtype"
complete -c tmactl -n '__tmactl_is bench' -l shape -x -d "extents, outermost first"
complete -c tmactl -n '__tmactl_is bench' -l permute -x -d "dimension d of the output is dimension P[d] of the input"
complete -c tmactl -n '__tmactl_is bench' -l pad -x -d "elements added before:after each dimension of the output"
complete -c tmactl -n '__tmactl_is bench' -l split -x -d "D:N for each split, in turn"
complete -c tmactl -n '__tmactl_is bench' -l join -x -d "D:E for each join, in turn"
complete -c tmactl -n '__tmactl_is bench' -l mode -x -a 'constant edge reflect symmetric wrap' -d "how to pad"
complete -c tmactl -n '__tmactl_is bench' -l value -x -d "value for mode constant"
complete -c tmactl -n '__tmactl_is bench' -l from-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type of the input"
complete -c tmactl -n '__tmactl_is bench' -l to-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type of the output"
complete -c tmactl -n '__tmactl_is bench' -l cast -x -a 'saturate exact ieee' -d "what becomes of values that the type does not have"
complete -c tmactl -n '__tmactl_is bench' -l scale -x -d "number or quotient"
complete -c tmactl -n '__tmactl_is bench' -l bias -x -d "number or quotient that is added then, or a list of them"
complete -c tmactl -n '__tmactl_is bench' -l mean -x -d "number or list, subtracted before elements are divided by --std"
complete -c tmactl -n '__tmactl_is bench' -l std -x -d "number or list"
complete -c tmactl -n '__tmactl_is bench' -l channel-axis -x -d "dimension of the input, counted as by --permute, that lists have a number for each element of"
complete -c tmactl -n '__tmactl_is bench' -l amax-block -x -d "extents of a block of the output, each of which gets a scale that brings its largest magnitude to the type's largest value"
complete -c tmactl -n '__tmactl_is bench' -l power-of-two -d "round scales up to powers of two"
complete -c tmactl -n '__tmactl_is bench' -l least -x -d "what the largest magnitude of a block is taken to be at least"
complete -c tmactl -n '__tmactl_is bench' -l scale-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "type of the scales"
complete -c tmactl -n '__tmactl_is bench' -l priority -x -a 'normal background urgent' -d "what they pass among the requests of this user"
complete -c tmactl -n '__tmactl_is bench' -l multiprocessors -x -d "multiprocessors of the device that each launch occupies at most"
complete -c tmactl -n '__tmactl_is bench' -l host-threads -x -d "threads of the service that move the bytes of one request at once at most"
complete -c tmactl -n '__tmactl_is completion' -x -a 'bash zsh fish'
complete -c tmactl -n '__tmactl_is copy' -x -a '(__fish_complete_suffix .npy)'
complete -c tmactl -n '__tmactl_is copy' -l permute -x -d "dimension d of the output is dimension P[d] of the input"
complete -c tmactl -n '__tmactl_is copy' -l pad -x -d "elements added before:after each dimension of the output"
complete -c tmactl -n '__tmactl_is copy' -l split -x -d "D:N for each split, in turn"
complete -c tmactl -n '__tmactl_is copy' -l join -x -d "D:E for each join, in turn"
complete -c tmactl -n '__tmactl_is copy' -l mode -x -a 'constant edge reflect symmetric wrap' -d "how to pad"
complete -c tmactl -n '__tmactl_is copy' -l value -x -d "value for mode constant"
complete -c tmactl -n '__tmactl_is copy' -l from-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type of the input"
complete -c tmactl -n '__tmactl_is copy' -l to-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type of the output"
complete -c tmactl -n '__tmactl_is copy' -l dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "the same as --to-dtype"
complete -c tmactl -n '__tmactl_is copy' -l cast -x -a 'saturate exact ieee' -d "what becomes of values that the type does not have"
complete -c tmactl -n '__tmactl_is copy' -l scale -x -d "number or quotient"
complete -c tmactl -n '__tmactl_is copy' -l bias -x -d "number or quotient that is added then, or a list of them"
complete -c tmactl -n '__tmactl_is copy' -l mean -x -d "number or list, subtracted before elements are divided by --std"
complete -c tmactl -n '__tmactl_is copy' -l std -x -d "number or list"
complete -c tmactl -n '__tmactl_is copy' -l channel-axis -x -d "dimension of the input, counted as by --permute, that lists have a number for each element of"
complete -c tmactl -n '__tmactl_is copy' -l amax-block -x -d "extents of a block of the output, each of which gets a scale that brings its largest magnitude to the type's largest value"
complete -c tmactl -n '__tmactl_is copy' -l power-of-two -d "round scales up to powers of two"
complete -c tmactl -n '__tmactl_is copy' -l least -x -d "what the largest magnitude of a block is taken to be at least"
complete -c tmactl -n '__tmactl_is copy' -l scale-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "type of the scales"
complete -c tmactl -n '__tmactl_is copy' -l scale-output -x -a '(__fish_complete_suffix .npy)' -d "where the scales are written, as another .npy file"
complete -c tmactl -n '__tmactl_is copy' -l priority -x -a 'normal background urgent' -d "what they pass among the requests of this user"
complete -c tmactl -n '__tmactl_is copy' -l multiprocessors -x -d "multiprocessors of the device that each launch occupies at most"
complete -c tmactl -n '__tmactl_is copy' -l host-threads -x -d "threads of the service that move the bytes of one request at once at most"
complete -c tmactl -n '__tmactl_is copy' -l no-clobber -d "fail if DST, or the file of --scale-output, exists, and leave both unchanged"
complete -c tmactl -n '__tmactl_is copy' -l memory -x -d "memory for data in flight"
complete -c tmactl -n '__tmactl_is explain' -x -a '(__fish_complete_suffix .npy)'
complete -c tmactl -n '__tmactl_is explain' -l dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "the same as --from-dtype"
complete -c tmactl -n '__tmactl_is explain' -l shape -x -d "extents, outermost first"
complete -c tmactl -n '__tmactl_is explain' -l permute -x -d "dimension d of the output is dimension P[d] of the input"
complete -c tmactl -n '__tmactl_is explain' -l pad -x -d "elements added before:after each dimension of the output"
complete -c tmactl -n '__tmactl_is explain' -l split -x -d "D:N for each split, in turn"
complete -c tmactl -n '__tmactl_is explain' -l join -x -d "D:E for each join, in turn"
complete -c tmactl -n '__tmactl_is explain' -l mode -x -a 'constant edge reflect symmetric wrap' -d "how to pad"
complete -c tmactl -n '__tmactl_is explain' -l value -x -d "value for mode constant"
complete -c tmactl -n '__tmactl_is explain' -l from-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type of the input"
complete -c tmactl -n '__tmactl_is explain' -l to-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "element type of the output"
complete -c tmactl -n '__tmactl_is explain' -l cast -x -a 'saturate exact ieee' -d "what becomes of values that the type does not have"
complete -c tmactl -n '__tmactl_is explain' -l scale -x -d "number or quotient"
complete -c tmactl -n '__tmactl_is explain' -l bias -x -d "number or quotient that is added then, or a list of them"
complete -c tmactl -n '__tmactl_is explain' -l mean -x -d "number or list, subtracted before elements are divided by --std"
complete -c tmactl -n '__tmactl_is explain' -l std -x -d "number or list"
complete -c tmactl -n '__tmactl_is explain' -l channel-axis -x -d "dimension of the input, counted as by --permute, that lists have a number for each element of"
complete -c tmactl -n '__tmactl_is explain' -l amax-block -x -d "extents of a block of the output, each of which gets a scale that brings its largest magnitude to the type's largest value"
complete -c tmactl -n '__tmactl_is explain' -l power-of-two -d "round scales up to powers of two"
complete -c tmactl -n '__tmactl_is explain' -l least -x -d "what the largest magnitude of a block is taken to be at least"
complete -c tmactl -n '__tmactl_is explain' -l scale-dtype -x -a 'bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128' -d "type of the scales"
complete -c tmactl -n '__tmactl_is explain' -l from -x -a 'vllm_nhd vllm_hnd nhd hnd flashinfer_nhd flashinfer_hnd token_first lbnhc lbhnc lhbnc block_first block_first_hnd blnhc blhnc bhlnc universal universal_pp page_unified layer_first page_first page_first_direct page_head nchw4c nchw8c nchw16c nchw32c ncdhw32c nhwc8c nhwc16c oihw16i16o oihw4i16o4i col32 scales_128x4' -d "layout of the source, as tmactl layouts lists them"
complete -c tmactl -n '__tmactl_is explain' -l to -x -a 'vllm_nhd vllm_hnd nhd hnd flashinfer_nhd flashinfer_hnd token_first lbnhc lbhnc lhbnc block_first block_first_hnd blnhc blhnc bhlnc universal universal_pp page_unified layer_first page_first page_first_direct page_head nchw4c nchw8c nchw16c nchw32c ncdhw32c nhwc8c nhwc16c oihw16i16o oihw4i16o4i col32 scales_128x4' -d "layout of the destination"
complete -c tmactl -n '__tmactl_is explain' -l layers -x -d "layers"
complete -c tmactl -n '__tmactl_is explain' -l kv -x -d "2"
complete -c tmactl -n '__tmactl_is explain' -l blocks -x -d "blocks, or pages"
complete -c tmactl -n '__tmactl_is explain' -l tokens -x -d "tokens of a block"
complete -c tmactl -n '__tmactl_is explain' -l heads -x -d "KV heads of the model"
complete -c tmactl -n '__tmactl_is explain' -l head-size -x -d "elements of a head"
complete -c tmactl -n '__tmactl_is explain' -l group -x -d "heads of a group, in layouts that have groups"
complete -c tmactl -n '__tmactl_is explain' -l tp -x -d "tensor-parallel size of the destination, which has the heads of one rank"
complete -c tmactl -n '__tmactl_is explain' -l rank -x -d "rank of the destination"
complete -c tmactl -n '__tmactl_is explain' -l from-tp -x -d "tensor-parallel size of the source"
complete -c tmactl -n '__tmactl_is explain' -l from-rank -x -d "rank of the source"
complete -c tmactl -n '__tmactl_is explain' -l engine -x -a 'cpu cuda' -d "plan for this engine, which need not be the service's"
complete -c tmactl -n '__tmactl_is explain' -l svg -r -F -d "draw the tile that the plan moves, and its layout in shared memory"
complete -c tmactl -n '__tmactl_is help' -x -a 'bench completion copy explain help info layouts ping regions stats top'
complete -c tmactl -n '__tmactl_is top' -s d -l interval -x -d "seconds between updates"
complete -c tmactl -n '__tmactl_is top' -s n -l count -x -d "stop after this many updates"
complete -c tmactl -n '__tmactl_is top' -l once -d "show one update"
complete -c tmactl -n '__tmactl_is top' -l sort -x -a 'rate bytes p50 p99 errors mapped uid pid' -d "column to sort the table by"
