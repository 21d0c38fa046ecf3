//! BOE's ends in scripts, of version 2 (`v2`) or 3 (`v3`).
//!
//! `machine client v2 [skip | fail]`: `do connect`, `do received UNIT NUMBER`, `do sent NUMBER`,
//! `do send TYPE TEXT`, `do fate NUMBER` (an error with the fate), `do logout`, `do disconnected`.
//! `machine server v2`: `do connected`, `do accept [UNIT NUMBER]`, `do reject S TEXT`, `do again
//! TYPE UNIT NUMBER TEXT`, `do complete`, `do send TYPE UNIT TEXT`, `do logout U`.

use order_entry::Text;
use order_entry::boe::{
    Client, ClientConfig, ClientEvent, Credentials, LoginStatus, LogoutReason, Message, Server, ServerConfig,
    ServerEvent, UnitSequence, UnspecifiedUnits, V2, V3, Version,
};
use order_entry::session::{Escaped, Output, Recovery};

use super::Machine;

pub(crate) fn machine(words: &[&str]) -> Box<dyn Machine> {
    match words[1] {
        "v2" => of_version::<V2>(words),
        "v3" => of_version::<V3>(words),
        other => panic!("{other} is no version"),
    }
}

fn of_version<V: Version + 'static>(words: &[&str]) -> Box<dyn Machine> {
    if words[0] == "server" {
        return Box::new(Server::<V>::new(ServerConfig::default()));
    }
    let credentials = Credentials::new("USER", "0001", "PASS").unwrap();
    let unspecified = match words.get(2) {
        Some(&"skip") => UnspecifiedUnits::Skip,
        Some(&"fail") => UnspecifiedUnits::Fail,
        _ => UnspecifiedUnits::Replay,
    };
    Box::new(Client::<V>::new(ClientConfig { unspecified, ..ClientConfig::new(credentials) }))
}

fn number<T: std::str::FromStr>(word: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    word.parse().unwrap()
}

fn show(message: &Message<'_>) -> String {
    let Message { kind, unit, sequence, body } = message;
    format!("Message {kind} unit {unit} number {sequence} {}", Escaped(body))
}

impl<V: Version> Machine for Client<V> {
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String> {
        match *words {
            ["connect"] => self.connect(now_ns, output),
            ["received", unit, last] => {
                self.set_received(number(unit), number(last));
                Ok(())
            }
            ["sent", last] => {
                self.set_sent(number(last));
                Ok(())
            }
            ["send", kind, text] => self.send(now_ns, number(kind), text.as_bytes(), output).map(drop),
            ["fate", of] => return Err(format!("{:?}", self.fate(number(of)))),
            ["logout"] => self.logout(now_ns, output),
            ["disconnected"] => {
                self.disconnected();
                Ok(())
            }
            _ => panic!("no such call: {words:?}"),
        }
        .map_err(|error| error.to_string())
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8], _: &mut Output<'_>) -> Result<Option<String>, String> {
        let event = Client::receive(self, now_ns, input).map_err(|error| error.to_string())?;
        Ok(event.map(|event| match event {
            ClientEvent::LoggedIn { last_received } => format!("LoggedIn {last_received}"),
            ClientEvent::LoginRejected { status, text } => format!("LoginRejected {status}: {text}"),
            ClientEvent::Message(message) => show(&message),
            ClientEvent::Logout { reason, text } => format!("Logout {reason}: {text}"),
            other => format!("{other:?}"),
        }))
    }

    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), String> {
        Client::tick(self, now_ns, output).map_err(|error| error.to_string())
    }

    fn deadline_ns(&self) -> Option<u64> {
        Client::deadline_ns(self)
    }
}

impl<V: Version> Machine for Server<V> {
    fn act(&mut self, now_ns: u64, words: &[&str], output: &mut Output<'_>) -> Result<(), String> {
        match *words {
            ["connected"] => {
                self.connected(now_ns);
                Ok(())
            }
            ["accept"] => self.accept(now_ns, &[], output),
            ["accept", unit, last] => self.accept(now_ns, &[UnitSequence::new(number(unit), number(last))], output),
            ["reject", status, text] => {
                let text = Text::zero_padded(text).unwrap();
                self.reject(now_ns, LoginStatus(status.as_bytes()[0]), &text, output)
            }
            ["again", kind, unit, sequence, text] => {
                let (kind, unit, sequence, body) = (number(kind), number(unit), number(sequence), text.as_bytes());
                self.send_again(now_ns, &Message { kind, unit, sequence, body }, output)
            }
            ["complete"] => self.complete_replay(now_ns, output),
            ["send", kind, unit, text] => {
                self.send(now_ns, number(kind), number(unit), text.as_bytes(), output).map(drop)
            }
            ["logout", reason] => self.logout(LogoutReason(reason.as_bytes()[0]), &Text([0; 60]), &[], output),
            _ => panic!("no such call: {words:?}"),
        }
        .map_err(|error| error.to_string())
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8], _: &mut Output<'_>) -> Result<Option<String>, String> {
        let event = Server::receive(self, now_ns, input).map_err(|error| error.to_string())?;
        Ok(event.map(|event| match event {
            ServerEvent::Login(login) => {
                let units: Vec<_> = login.units.iter().map(|unit| (unit.unit, unit.sequence.get())).collect();
                format!("Login {} {:?} {units:?} {}", login.credentials.user, login.unspecified, login.returns.0)
            }
            ServerEvent::Message { message, is_during_replay } => {
                format!("{}{}", show(&message), if is_during_replay { " during replay" } else { "" })
            }
            other => format!("{other:?}"),
        }))
    }

    fn tick(&mut self, now_ns: u64, output: &mut Output<'_>) -> Result<(), String> {
        Server::tick(self, now_ns, output).map_err(|error| error.to_string())
    }

    fn deadline_ns(&self) -> Option<u64> {
        Server::deadline_ns(self)
    }
}
