//! Numbers in scripts: `1460`, `1+1460*i`, `-1`, `(n-1)*mss`, with variables from `let` and
//! `repeat`. Arithmetic is that of sequence numbers once a field takes the value: modulo 2^32.

use std::collections::HashMap;

/// A number, or how to get it.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Number(i64),
    Variable(String),
    Operation(Box<Self>, char, Box<Self>),
}

/// Values by name.
pub(super) type Variables = HashMap<String, i64>;

impl Expression {
    /// Reads all of `text`, which has no blanks.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { text, rest: text };
        let expression = reader.sum()?;
        if reader.rest.is_empty() { Ok(expression) } else { Err(reader.error()) }
    }

    /// Its value now.
    pub(super) fn value(&self, variables: &Variables) -> Result<i64, String> {
        Ok(match self {
            Self::Number(number) => *number,
            Self::Variable(name) => *variables.get(name).ok_or_else(|| format!("there is no variable {name}"))?,
            Self::Operation(left, operator, right) => {
                let (left, right) = (left.value(variables)?, right.value(variables)?);
                let value = match operator {
                    '+' => left.checked_add(right),
                    '-' => left.checked_sub(right),
                    '*' => left.checked_mul(right),
                    _ => left.checked_div(right),
                };
                value.ok_or_else(|| format!("{left} {operator} {right} has no value"))?
            }
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    fn error(&self) -> String {
        format!("{:?} is no number: something is wrong at {:?}", self.text, self.rest)
    }

    fn take(&mut self, any: &[char]) -> Option<char> {
        let first = self.rest.chars().next().filter(|first| any.contains(first))?;
        self.rest = &self.rest[1..];
        Some(first)
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            left = Expression::Operation(Box::new(left), operator, Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.atom()?;
        while let Some(operator) = self.take(&['*', '/']) {
            left = Expression::Operation(Box::new(left), operator, Box::new(self.atom()?));
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Expression, String> {
        if self.take(&['-']).is_some() {
            return Ok(Expression::Operation(Box::new(Expression::Number(0)), '-', Box::new(self.atom()?)));
        }
        if self.take(&['(']).is_some() {
            let inner = self.sum()?;
            return if self.take(&[')']).is_some() { Ok(inner) } else { Err(self.error()) };
        }
        let len = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(len);
        let expression = match word.chars().next() {
            Some(first) if first.is_ascii_digit() => Expression::Number(word.parse().map_err(|_| self.error())?),
            Some(_) => Expression::Variable(word.to_owned()),
            None => return Err(self.error()),
        };
        self.rest = rest;
        Ok(expression)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    #[test]
    fn products_bind_before_sums() {
        let variables = Variables::from([("i".to_owned(), 3), ("mss".to_owned(), 1460)]);
        for (text, value) in [("7", 7), ("1+mss*i", 4381), ("-1", -1), ("(i-1)*10-2", 18), ("10/3", 3)] {
            assert_eq!(Expression::parse(text).unwrap().value(&variables), Ok(value), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "1+", "(1", "1)", "12x", "a b", "1..2"] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
        assert!(Expression::parse("1/0").unwrap().value(&Variables::new()).is_err());
        assert!(Expression::parse("nobody").unwrap().value(&Variables::new()).is_err());
    }
}
