# SPDX-License-Identifier: Apache-2.0
# From what make -n says it would run, the compilation database that editors read: one entry for each C or C++ source
# file, with the first command that compiles it. -v folder= is where make runs, -v sources= where the source tree is.

function in_json(text)
{
	gsub(/\\/, "\\\\", text)
	gsub(/"/, "\\\"", text)
	return "\"" text "\""
}

BEGIN { print "[" }

# Only a compiler's command: `-c -o OBJECT SOURCE`, behind libtool's words where the object is for a library.
/ -c -o [^ ]+ .*\.(c|cc)( *&&\\)?$/ {
	command = $0
	sub(/ *&&\\$/, "", command)
	sub(/^.* --mode=compile /, "", command)
	sub(/^ccache /, "", command)
	sub(/ -MT .* -c -o /, " -c -o ", command)
	sub(/`[^`]*`/, "", command)
	file = command
	sub(/^.* /, "", file)
	sub(/[^ ]*$/, "", command)
	if (file !~ /^\//)
		file = sources "/" file
	if (file in seen)
		next
	seen[file]
	printf "%s{ \"directory\": %s, \"file\": %s,\n  \"command\": %s }", n++ ? ",\n" : "", in_json(folder), in_json(file),
	    in_json(command file)
}

END { print "\n]" }
