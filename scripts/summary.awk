# Reads logs of `cargo test -- --show-output` and prints what was skipped, what failed, and the
# counts.
#
# A test that cannot run where it is prints `SKIPPED name: why` and returns, so cargo counts it as
# passed; here it is moved from passed to skipped. A stage that ends badly without naming a test (it
# did not compile, or a test took the process down) counts as one failure. Below a test that failed
# stands what it panicked with, because a machine that is gone keeps no log. Exit code 1 if anything
# failed.

function skip(line) { if (!(line in seen)) { seen[line]; skipped_lines[++lines] = line } }

FNR == 1                  { failed_before = failed; section = ""; in_failures = 0; in_panic = 0 }
/^successes:$/            { in_failures = 0 }
/^failures:$/             { in_failures = 1; section = "" }
/^---- .* stdout ----$/   { section = $0; name = $2; in_panic = 0 }

/^stack backtrace:|^note: |^$/    { in_panic = 0 }
in_failures && in_panic-- > 0     { panics[name] = panics[name] "\n    " substr($0, 1, 300) }
in_failures && / panicked at /    { in_panic = 12; panics[name] = panics[name] "\n    " $0 }

/^SKIPPED / {
    skip($0)
    if (section == "" && !in_failures) skipped++
    if (section != "" && !in_failures && section != counted) { counted = section; skipped++; passed-- }
}

/^test .* \.\.\. ignored/ {
    line = $0; sub(/^test /, "", line); sub(/ \.\.\. ignored,? ?/, ": ignored; ", line); sub(/; $/, "", line)
    skip("SKIPPED " line)
}

/^test .* \.\.\. FAILED$/ { line = $0; sub(/^test /, "", line); sub(/ \.\.\. FAILED$/, "", line); failures[++names] = "FAILED " line; tests[names] = line }

/^test result: / {
    for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/)  passed  += $(i - 1)
        if ($i ~ /^failed/)  failed  += $(i - 1)
        if ($i ~ /^ignored/) skipped += $(i - 1)
    }
    section = ""; counted = ""; in_failures = 0
}

/^STAGE FAILED / {
    line = $0; sub(/^STAGE /, "", line); failures[++names] = line
    if (failed == failed_before) failed++
}

END {
    for (i = 1; i <= lines; i++) print skipped_lines[i]
    for (i = 1; i <= names; i++) print failures[i] ((i in tests) ? panics[tests[i]] : "")
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0
}
