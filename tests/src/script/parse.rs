//! A script as lines: each is `[TIME] [FLOW:] VERB …`. `given` stands for the lines of a handshake.

use wirepath::pipeline::tcp::AcceptDecision;
use wirepath::time::Duration;

use super::ScriptError;
use super::app::Call;
use super::expect::Expectation;
use super::expression::Expression;
use super::line::{Action, Line, When, WireState};
use super::options::{Limit, Setting, number, span};
use super::segment::{Expected, Incoming};

/// Reads a script.
pub(super) fn parse(script: &str) -> Result<Vec<Line>, ScriptError> {
    let mut open: Vec<(Line, Vec<Line>)> = Vec::new();
    let mut lines = Vec::new();
    for (idx, text) in script.lines().enumerate() {
        let code = text.split('#').next().unwrap_or("").trim();
        if code.is_empty() {
            continue;
        }
        let number = idx + 1;
        let error = |what| ScriptError { line: number, text: code.to_owned(), what };
        if code == "end" {
            let (mut repeat, before) = open.pop().ok_or_else(|| error("end of nothing".to_owned()))?;
            if let Action::Repeat(_, _, body) = &mut repeat.action {
                *body = core::mem::replace(&mut lines, before);
            }
            lines.push(repeat);
            continue;
        }
        for code in expand(code).map_err(error)? {
            let line = parse_line(&code, number).map_err(error)?;
            if let Action::Repeat(..) = line.action {
                open.push((line, core::mem::take(&mut lines)));
            } else {
                lines.push(line);
            }
        }
    }
    match open.pop() {
        Some((repeat, _)) => {
            Err(ScriptError { line: repeat.number, text: repeat.text, what: "repeat without end".to_owned() })
        }
        None => Ok(lines),
    }
}

/// `given connected | accepted [rtt TIME] [win N] [<options>]`: the lines of the handshake. Others
/// are themselves.
fn expand(code: &str) -> Result<Vec<String>, String> {
    let (flow, rest) = match code.split_once(": ") {
        Some((flow, rest)) if !flow.contains(' ') => (format!("{flow}: "), rest),
        _ => (String::new(), code),
    };
    let Some(given) = rest.strip_prefix("given ") else { return Ok(vec![code.to_owned()]) };
    let (head, options) = given.split_once('<').unwrap_or((given, "mss 1460,sackOK>"));
    let mut words = head.split_whitespace();
    let who = words.next().unwrap_or_default();
    let (mut rtt, mut win, mut after) = ("10ms".to_owned(), "65535".to_owned(), String::new());
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} has no value"))?.to_owned();
        match word {
            "rtt" => rtt = value,
            "win" => win = value,
            "after" => after = format!("+{value} "),
            _ => return Err(format!("there is no {word:?} of a handshake: rtt, win, after")),
        }
    }
    // With timestamps the peer's clock says 1000 in its SYN, and goes on in milliseconds.
    let stamped = if options.contains("ts ") { " <ts 1000+rtt_ms 0>" } else { "" };
    let rtt_ms = span(&rtt)?.as_nanos() / 1_000_000;
    let stamped = stamped.replace("rtt_ms", &rtt_ms.to_string());
    match who {
        "connected" => Ok(vec![
            format!("{after}{flow}call connect"),
            format!("{flow}> S seq 0"),
            format!("+{rtt} {flow}< SA seq 0 ack 1 win {win} <{options}"),
            format!("{flow}> A seq 1 ack 1"),
            format!("{flow}expect Connected"),
        ]),
        "accepted" => Ok(vec![
            format!("{after}{flow}call listen"),
            format!("{flow}< S seq 0 win {win} <{options}"),
            format!("{flow}> SA seq 0 ack 1"),
            format!("+{rtt} {flow}< A seq 1 ack 1{stamped}"),
            format!("{flow}expect Connected"),
        ]),
        _ => Err(format!("{who:?} is no handshake: connected or accepted")),
    }
}

fn parse_line(code: &str, number: usize) -> Result<Line, String> {
    let (when, rest) = parse_when(code)?;
    let (flow, rest) = match rest.split_once(char::is_whitespace) {
        Some((word, rest)) if word.ends_with(':') => (Some(word.trim_end_matches(':').to_owned()), rest.trim()),
        _ => (None, rest),
    };
    Ok(Line { number, text: code.to_owned(), when, flow, action: parse_action(rest)? })
}

/// `+TIME` or `+TIME..TIME`.
fn parse_when(code: &str) -> Result<(When, &str), String> {
    let Some(rest) = code.strip_prefix('+') else { return Ok((When::Same, code)) };
    let (time, rest) = rest.split_once(char::is_whitespace).ok_or("a time, and nothing happens")?;
    let (from, to) = match time.split_once("..") {
        Some((from, to)) => (span(from)?, span(to)?),
        None => (span(time)?, span(time)?),
    };
    if to < from {
        return Err("the second time is before the first".to_owned());
    }
    Ok((When::After(from, to), rest.trim()))
}

fn parse_action(rest: &str) -> Result<Action, String> {
    let (verb, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let behind = behind.trim();
    let words: Vec<&str> = behind.split_whitespace().collect();
    Ok(match (verb, &words[..]) {
        ("<", _) => Action::Receive(Box::new(Incoming::parse(behind)?)),
        (">", ["nothing"]) => Action::Silence,
        (">", _) => Action::Leaves(Box::new(Expected::parse(behind)?)),
        ("call", _) => {
            let (call, error) = match behind.split_once("->") {
                Some((call, error)) => (call, Some(error.trim().to_owned())),
                None => (behind, None),
            };
            Action::Call(Call::parse(&call.split_whitespace().collect::<Vec<_>>())?, error)
        }
        ("expect", words) => Action::Expect(Expectation::parse(words)?),
        ("option", words) => Action::Option(Setting::parse(words)?),
        ("config", words) => Action::Config(Limit::parse(words)?),
        ("app", ["accepts"]) => Action::Policy(AcceptDecision::Yes),
        ("app", ["refuses"]) => Action::Policy(AcceptDecision::Refuse),
        ("app", ["ignores"]) => Action::Policy(AcceptDecision::Ignore),
        ("app", ["reads"]) => Action::Reads(true),
        ("app", ["waits"]) => Action::Reads(false),
        ("wire", ["free"]) => Action::Wire(WireState::Free),
        ("wire", ["busy"]) => Action::Wire(WireState::Busy),
        ("wire", ["down"]) => Action::Wire(WireState::Down),
        ("wire", ["mtu", mtu]) => Action::Wire(WireState::Mtu(Expression::parse(mtu)?)),
        ("wire", ["cuts", len]) => Action::Wire(WireState::Cuts(Expression::parse(len)?)),
        ("anew", []) => Action::Anew,
        ("at", [remote]) => Action::At(number(remote)?),
        ("like", [name]) => Action::Like((*name).to_owned()),
        ("let", [name, "=", value]) => Action::Let((*name).to_owned(), Expression::parse(value)?),
        ("repeat", [count]) => Action::Repeat(Expression::parse(count)?, None, Vec::new()),
        ("repeat", [count, name]) => Action::Repeat(Expression::parse(count)?, Some((*name).to_owned()), Vec::new()),
        _ => {
            return Err(format!(
                "{rest:?} says nothing: < > call expect option config app wire anew at like let repeat end given"
            ));
        }
    })
}

/// No time at all.
pub(super) const AT_ONCE: Duration = Duration::ZERO;
