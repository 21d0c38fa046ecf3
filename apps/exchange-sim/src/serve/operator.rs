//! Who commands the venue: a script by its times, and a person by a channel.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::settings::parse_duration;
use crate::venue::{Command, Venue};

/// Commands and their times since the program's start: a line each, such as `2s halt AAPL`, empty
/// ones and those that begin with `#` aside.
#[derive(Clone, Debug, Default)]
pub struct Script(VecDeque<(Duration, Command)>);

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut commands = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let timed = line.split_once(char::is_whitespace).ok_or("use TIME COMMAND, such as 2s halt AAPL".to_owned());
            let timed = timed.and_then(|(time, command)| Ok((parse_duration(time)?, command.parse()?)));
            commands.push(timed.map_err(|why| format!("line {number}: {why}"))?);
        }
        commands.sort_by_key(|&(time, _)| time);
        Ok(Self(commands.into()))
    }
}

/// See [`Exchange::set_operator`](super::Exchange::set_operator).
pub struct Operator {
    script: Script,
    commands: Receiver<Command>,
    tell: Box<dyn FnMut(Command, Result<(), String>) + Send>,
}

impl Operator {
    /// Obeys a script, and what comes by a channel; `tell` learns what became of each.
    pub fn new(
        script: Script,
        commands: Receiver<Command>,
        tell: impl FnMut(Command, Result<(), String>) + Send + 'static,
    ) -> Self {
        Self { script, commands, tell: Box::new(tell) }
    }

    /// Obeys what is due. True where something was.
    pub(super) fn turn(&mut self, venue: &mut Venue, since_start: Duration, now_ns: u64) -> bool {
        let mut is_busy = false;
        while let Some((_, command)) = self.script.0.pop_front_if(|&mut (time, _)| time <= since_start) {
            (self.tell)(command, venue.operate(command, now_ns));
            is_busy = true;
        }
        for command in self.commands.try_iter() {
            (self.tell)(command, venue.operate(command, now_ns));
            is_busy = true;
        }
        is_busy
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("script", &self.script).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_read_in_the_order_of_its_times() {
        let script: Script = "# a day\n\n2s break 7\n  500ms halt AAPL\n2s quote all".parse().unwrap();
        let read: Vec<_> = script.0.iter().map(|(time, command)| format!("{time:?} {command}")).collect();
        assert_eq!(read, ["500ms halt AAPL", "2s break 7", "2s quote all"]);
    }

    #[test]
    fn error_of_a_script_has_its_line() {
        for (text, why) in [
            ("1s halt", "line 1: use halt"),
            ("\nhalt AAPL", "line 2: use a whole number"),
            ("1s", "line 1: use TIME COMMAND"),
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
