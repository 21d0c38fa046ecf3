//! The examples as an operator meets them who gets something wrong: a sentence that says what to do.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::error::Error;

#[path = "../examples/live.rs"]
#[allow(dead_code, clippy::duplicate_mod)] // its `main`; and each example has its own `cli`
mod live;
#[path = "../examples/order.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod order;
#[path = "../examples/tcp_echo.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod tcp_echo;

/// What an example does with its arguments.
type Run = fn(&[String]) -> Result<(), Box<dyn Error>>;

/// It ends, and says just this.
fn check(run: Run, arguments: &[&str], sentence: &str) {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    assert_eq!(run(&arguments).unwrap_err().to_string(), sentence, "{arguments:?}");
}

#[test]
fn wrong_number_of_arguments_is_told_the_right_ones() {
    check(tcp_echo::run, &["eth1"], "usage: tcp_echo [INTERFACE ADDRESS/LEN]");
    check(order::run, &["eth1", "10.0.0.2/24"], "usage: order [INTERFACE ADDRESS/LEN GATEWAY:PORT]");
    check(live::run, &[], "usage: live INTERFACE GROUP PORT");
}

#[test]
fn argument_that_is_none_is_named_with_what_it_should_look_like() {
    let no_prefix = "`10.0.0.2` is not an address with its network's length, like 10.0.0.2/24";
    check(tcp_echo::run, &["nosuch", "10.0.0.2"], no_prefix);
    check(order::run, &["nosuch", "10.0.0.2", "10.0.0.1:9100"], no_prefix);
    let no_port = "`10.0.0.1` is not an address and a port, like 10.0.0.1:9100";
    check(order::run, &["nosuch", "10.0.0.2/24", "10.0.0.1"], no_port);
    check(live::run, &["nosuch", "239.1.1", "9000"], "`239.1.1` is not a group's address, like 239.1.1.1");
    check(live::run, &["nosuch", "239.1.1.1", "90000"], "`90000` is not a port, like 9000");
}

#[test]
fn interface_that_is_not_there_is_told_where_to_find_those_that_are() {
    let sentence = "there is no interface nosuch in this network namespace; `ip link` lists those there are";
    check(tcp_echo::run, &["nosuch", "10.0.0.2/24"], sentence);
    check(order::run, &["nosuch", "10.0.0.2/24", "10.0.0.1:9100"], sentence);
    check(live::run, &["nosuch", "239.1.1.1", "9000"], sentence);
}
