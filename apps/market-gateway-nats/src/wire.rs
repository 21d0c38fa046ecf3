//! The protocol of NATS: lines of text, and payloads whose length the line has.

use core::{fmt, str};

/// Bytes of the longest line: the server's INFO with many addresses.
const LINE_MAX: usize = 65_536;
/// Bytes of the longest payload that is believed; NATS advises against more.
const PAYLOAD_MAX: usize = 8 << 20;

/// What a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// Its first line, JSON.
    Info(&'a [u8]),
    /// It wants a PONG.
    Ping,
    /// The answer to a PING.
    Pong,
    /// A command was accepted; only in verbose mode.
    Accepted,
    /// A command was refused, or the connection ends.
    Error(&'a str),
    /// A message of a subscription.
    Message {
        /// Its subject.
        subject: &'a str,
        /// The number of the subscription that it came by.
        subscription: u64,
        /// Where an answer is wanted.
        reply: Option<&'a str>,
        /// The block of headers, empty where there is none.
        headers: &'a [u8],
        /// The body.
        payload: &'a [u8],
    },
}

/// A server breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A line does not end.
    LineLong,
    /// A line is none of the protocol.
    Unknown,
    /// Lengths that do not fit each other, or are too large.
    Length,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LineLong => "a line of the NATS protocol does not end",
            Self::Unknown => "a line that the NATS protocol does not have: is this a NATS server?",
            Self::Length => "a message of NATS has a wrong length",
        })
    }
}

impl core::error::Error for WireError {}

/// The next thing in `input` and its bytes; `None` where it is not whole yet.
pub fn parse(input: &[u8]) -> Result<Option<(ServerMessage<'_>, usize)>, WireError> {
    // A line is as long whether it comes whole or in pieces.
    let front = &input[..input.len().min(LINE_MAX + 2)];
    let Some(end) = front.windows(2).position(|pair| pair == b"\r\n") else {
        let may_end = front.get(LINE_MAX..).is_none_or(|rest| b"\r\n".starts_with(rest));
        return if may_end { Ok(None) } else { Err(WireError::LineLong) };
    };
    let line = str::from_utf8(&input[..end]).map_err(|_| WireError::Unknown)?;
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let told = match verb {
        "MSG" | "HMSG" => return message(verb == "HMSG", rest, input, end + 2),
        "INFO" => ServerMessage::Info(rest.as_bytes()),
        "PING" => ServerMessage::Ping,
        "PONG" => ServerMessage::Pong,
        "+OK" => ServerMessage::Accepted,
        "-ERR" => ServerMessage::Error(rest),
        _ => return Err(WireError::Unknown),
    };
    Ok(Some((told, end + 2)))
}

fn message<'a>(
    has_headers: bool,
    rest: &'a str,
    input: &'a [u8],
    start: usize,
) -> Result<Option<(ServerMessage<'a>, usize)>, WireError> {
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let (subject, subscription, reply, lengths) = match (has_headers, &words[..]) {
        (false, &[subject, sid, len]) => (subject, sid, None, ("0", len)),
        (false, &[subject, sid, reply, len]) => (subject, sid, Some(reply), ("0", len)),
        (true, &[subject, sid, headers, len]) => (subject, sid, None, (headers, len)),
        (true, &[subject, sid, reply, headers, len]) => (subject, sid, Some(reply), (headers, len)),
        _ => return Err(WireError::Unknown),
    };
    let subscription = subscription.parse().map_err(|_| WireError::Unknown)?;
    let number = |text: &str| text.parse::<usize>().ok().filter(|&len| len <= PAYLOAD_MAX).ok_or(WireError::Length);
    let (headers, len) = (number(lengths.0)?, number(lengths.1)?);
    if headers > len {
        return Err(WireError::Length);
    }
    let Some(body) = input.get(start..start + len + 2) else { return Ok(None) };
    let Some(body) = body.strip_suffix(b"\r\n") else { return Err(WireError::Length) };
    let (headers, payload) = body.split_at(headers);
    Ok(Some((ServerMessage::Message { subject, subscription, reply, headers, payload }, start + len + 2)))
}

/// The value of a header in a block.
pub fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    let text = str::from_utf8(headers).ok()?;
    text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| *key == name).map(|(_, value)| value.trim())
}

/// The status of a block of headers that the server itself has written: a 409 ends a subscription,
/// a 503 is the answer where nobody listens. `None` in a message of a publisher.
pub fn status(headers: &[u8]) -> Option<&str> {
    let line = headers.strip_prefix(b"NATS/1.0 ")?.split(|&byte| byte == b'\r').next()?;
    str::from_utf8(line).ok().map(str::trim)
}

/// Appends a message with headers, each `name: value`.
pub fn publish(out: &mut Vec<u8>, subject: &str, reply: &str, headers: &[(&str, &str)], payload: &[u8]) {
    let lines: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let headers_len = "NATS/1.0\r\n".len() + lines + 2;
    let len = headers_len + payload.len();
    out.extend_from_slice(format!("HPUB {subject} {reply} {headers_len} {len}\r\nNATS/1.0\r\n").as_bytes());
    for (name, value) in headers {
        [name, ": ", value, "\r\n"].iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_comes_whole_or_not_at_all() {
        let text = b"HMSG md.x 1 reply 22 27\r\nNATS/1.0\r\nName: ab\r\n\r\nhello\r\nPING\r\n";
        let whole = text.len() - 6;
        for len in 0..whole {
            assert_eq!(parse(&text[..len]), Ok(None), "{len}");
        }
        let Ok(Some((told, len))) = parse(text) else { panic!("it is whole") };
        let ServerMessage::Message { subject, subscription, reply, headers, payload } = told else {
            panic!("{told:?}")
        };
        assert_eq!((subject, subscription, reply), ("md.x", 1, Some("reply")));
        assert_eq!((payload, len), (&b"hello"[..], whole));
        assert_eq!((header(headers, "Name"), header(headers, "Nam"), status(headers)), (Some("ab"), None, None));
        assert_eq!(parse(&text[whole..]), Ok(Some((ServerMessage::Ping, 6))));
    }

    #[test]
    fn status_of_the_server_is_its_first_line() {
        assert_eq!(status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n"), Some("409 Consumer Deleted"));
        assert_eq!(status(b"NATS/1.0\r\nA: b\r\n\r\n"), None);
    }

    #[test]
    fn what_breaks_the_protocol_is_an_error() {
        for (text, error) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], WireError::Unknown),
            (b"MSG a 1\r\n", WireError::Unknown),
            (b"MSG a x 1\r\n", WireError::Unknown),
            (b"MSG a 1 9999999999\r\n", WireError::Length),
            (b"MSG a 1 -1\r\n", WireError::Length),
            (b"HMSG a 1 9 5\r\n", WireError::Length),
            (b"MSG a 1 1\r\nxyz", WireError::Length),
            (&[b'x'; LINE_MAX + 1], WireError::LineLong),
        ] {
            assert_eq!(parse(text), Err(error));
        }
    }

    #[test]
    fn line_that_is_too_long_is_refused_whole_as_in_pieces() {
        let line = |len: usize| [b"INFO ", &vec![b'x'; len - 5][..], b"\r\n"].concat();
        let longest = line(LINE_MAX);
        assert!(matches!(parse(&longest), Ok(Some((ServerMessage::Info(_), len))) if len == LINE_MAX + 2));
        for len in [LINE_MAX - 1, LINE_MAX, LINE_MAX + 1] {
            assert_eq!(parse(&longest[..len]), Ok(None), "{len}");
        }
        let long = line(LINE_MAX + 1);
        for len in [LINE_MAX + 1, LINE_MAX + 2, long.len()] {
            assert_eq!(parse(&long[..len]), Err(WireError::LineLong), "{len}");
        }
    }

    #[test]
    fn published_message_is_as_the_protocol_has_it() {
        let mut out = Vec::new();
        publish(&mut out, "md.a", "in", &[("K", "v")], b"body");
        assert_eq!(out, b"HPUB md.a in 18 22\r\nNATS/1.0\r\nK: v\r\n\r\nbody\r\n");
    }
}
