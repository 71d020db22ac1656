//! What holds for every algorithm in the table. A new one is tested here without being named.

use std::collections::HashSet;

use rl_core::syntax::{CallFlags, Spec, one_limit_args};
use rl_core::{Algorithm, Error, FieldValue, MAX_COUNT, ParameterKind, State, Update};

use crate::key::{Key, NOW};

/// Everything that has limits of its own: a policy takes those of others.
fn algorithms() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.iter().copied();
    all.filter(|algorithm| algorithm.descriptor().command.is_some())
}

/// Arguments that an algorithm accepts, with `count` for every number.
fn arguments(algorithm: Algorithm, count: u64) -> Vec<String> {
    let parameters = algorithm.descriptor().parameters.iter();
    let argument = |kind| match kind {
        ParameterKind::Integer => count.to_string(),
        ParameterKind::Duration => "1h".to_owned(),
        _ => "text".to_owned(),
    };
    parameters
        .map(|parameter| argument(parameter.kind))
        .collect()
}

fn spec_text(algorithm: Algorithm, count: u64) -> String {
    let arguments = arguments(algorithm, count).join(" ");
    format!("{} {arguments}", algorithm.name())
}

#[test]
fn names_are_unique_and_fit_the_server() {
    let mut names = HashSet::new();
    for &algorithm in Algorithm::ALL {
        let descriptor = algorithm.descriptor();
        let (name, type_name) = (descriptor.name, descriptor.type_name.to_str().unwrap());
        assert!(names.insert(name), "{name} is there twice");
        assert!(names.insert(type_name), "{type_name} is there twice");
        assert_eq!(Algorithm::from_name(name.as_bytes()), Some(algorithm));
        assert_eq!(name, name.to_uppercase());
        // The server accepts no other length.
        assert_eq!(type_name.len(), 9, "{type_name}");
        assert!(type_name.starts_with("rl-"), "{type_name}");
        match descriptor.command {
            Some(command) => assert_eq!(command.to_str().unwrap(), format!("RL.{name}")),
            None => assert_eq!(algorithm, Algorithm::Policy),
        }
        assert!(descriptor.summary.to_str().unwrap().ends_with('.'));
        assert!(descriptor.complexity.to_str().unwrap().starts_with("O("));
        let synopsis = descriptor.to_string();
        assert!(Algorithm::spec_grammar().contains(&synopsis), "{synopsis}");
    }
}

#[test]
fn options_are_no_names_of_anything_else() {
    let mut tokens: HashSet<&str> = CallFlags::all()
        .iter_names()
        .map(|(name, _)| name)
        .collect();
    tokens.extend(["SHADOW", "COST", "NOTE", "EX", "SCALE", "BLOCK", "ALLOW"]);
    for &algorithm in Algorithm::ALL {
        assert!(tokens.insert(algorithm.name()), "{algorithm:?}");
    }
    for algorithm in algorithms() {
        for option in algorithm.descriptor().options {
            let token = option.token.unwrap().to_str().unwrap();
            assert!(tokens.insert(token), "{token} has two meanings");
            for error in [Error::UnknownOption, Error::TrailingWords] {
                let (text, of) = (error.message(), format!("(for {})", algorithm.name()));
                let explained = text.contains(token) && text.contains(&of);
                assert!(explained, "{error:?} lacks {token} {of}");
            }
        }
    }
}

#[test]
fn every_option_of_a_call_is_read_and_explained() {
    for (name, option) in CallFlags::all().iter_names() {
        let (words, expected) = match option {
            CallFlags::TIMES => (vec!["times", "3"], option),
            CallFlags::ATLEAST => (
                vec!["atleast", "2", "times", "3"],
                option | CallFlags::TIMES,
            ),
            _ => (vec![&*name.to_lowercase().leak()], option),
        };
        for algorithm in algorithms() {
            let mut arguments = arguments(algorithm, 9);
            arguments.extend(words.iter().map(ToString::to_string));
            let read = one_limit_args(algorithm, &mut arguments.iter().map(String::as_bytes));
            let expected = match algorithm {
                Algorithm::Lease if words.len() > 1 => Err(Error::TimesOfLease),
                _ => Ok(expected),
            };
            assert_eq!(read.map(|(_, options)| options.flags()), expected, "{name}");
        }
        for error in [
            Error::UnknownOption,
            Error::MisplacedOption,
            Error::OptionInPeek,
        ] {
            assert!(error.message().contains(name), "{error:?} lacks {name}");
        }
    }
}

#[test]
fn an_error_names_the_parameter_that_is_missing_or_wrong() {
    for algorithm in algorithms() {
        let arguments = arguments(algorithm, 9);
        let read = |arguments: &[String]| {
            let mut arguments = arguments.iter().map(String::as_bytes);
            one_limit_args(algorithm, &mut arguments).map(|(spec, _)| spec.limit.to_string())
        };
        assert_eq!(read(&arguments), Ok(spec_text(algorithm, 9)));
        let parameters = algorithm.descriptor().parameters.iter();
        for (index, parameter) in parameters.enumerate() {
            let name = parameter.name.to_str().unwrap();
            let missing = read(&arguments[..index]).unwrap_err();
            let text = format!("ERR incomplete limit: the {name} is missing");
            assert_eq!(missing.message(), text, "{algorithm:?}: {missing:?}");
            let mut wrong = arguments.clone();
            wrong[index] = match parameter.kind {
                ParameterKind::Text => String::new(),
                _ => "x".to_owned(),
            };
            let wrong = read(&wrong).unwrap_err();
            let text = format!("ERR {name} ");
            assert!(
                wrong.message().starts_with(&text),
                "{algorithm:?}: {wrong:?}"
            );
        }
    }
}

#[test]
fn a_state_is_read_as_it_was_written() {
    for algorithm in algorithms() {
        for count in [9, 1_000_000, 1 << 40, MAX_COUNT] {
            let text = spec_text(algorithm, count);
            let Ok(spec) = Spec::parse(text.as_bytes()) else {
                // EXACT keeps a log, so its limits are smaller.
                assert!(count > 1_000_000, "{text}");
                continue;
            };
            let mut key = Key::default();
            let outcome = key.store(&spec.limit, NOW, count, rl_core::Mode::Check);
            assert!(outcome.decision.allowed, "{text}");
            assert_eq!(outcome.decision.limit, count, "{text}");

            // What a replica receives, and what a file holds.
            let update = outcome.update.unwrap();
            let blob = update.blob();
            let received = Update::decode_blob(&blob).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(received, update, "{text}");
            let state = key.0.clone().unwrap();
            assert_eq!(State::decode_blob(&state.blob()).as_ref(), Ok(&state));
            assert_eq!(state.algorithm(), algorithm);
            if let Some(packed) = state.packed() {
                let read = State::decode(packed.as_slice());
                assert_eq!(read.as_ref(), Ok(&state), "{text}");
                let read = State::decode_as(algorithm, packed.as_slice());
                assert_eq!(read.as_ref(), Ok(&state), "{text}");
            }
            assert_eq!(state.packed().is_none(), algorithm.is_boxed(), "{text}");

            // RL.INSPECT and RL.REFUND.
            let fields = state.inspect(NOW);
            let used = fields.iter().find(|field| field.name == "used");
            let used = used.map(|field| &field.value);
            assert_eq!(used, Some(&FieldValue::Number(count)), "{text}");
            if algorithm != Algorithm::Lease {
                assert_eq!(key.refund(NOW, count), count, "{text}");
                assert_eq!(key.0, None, "{text}");
            }
        }
    }
}
