//! The text form of limits, in policies and overrides: `SLIDE 60 1m COST 1 SLIDE 90000 1m`.

use std::fmt;
use std::str::FromStr;

use crate::algorithm::{MAX_RULES, Rule, check_allowed_in_policy};
use crate::syntax::{LimitOptions, is_option, parse_count, parse_integer};
use crate::{Algorithm, Error, Limit, PolicyLimits, Relocate};

/// The limits of a policy or an override: one to sixteen rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Box<[Rule]>);

impl Rules {
    pub(super) fn relocate(&mut self, by: &mut impl Relocate) {
        by.slice(&mut self.0);
    }

    /// Reads limits until an argument does not start one.
    pub fn parse<'a>(args: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let mut rules = Vec::new();
        while let Some(algorithm) = peek(args).and_then(Algorithm::from_name) {
            args.next();
            rules.push(parse_rule(algorithm, args)?);
            if rules.len() > MAX_RULES {
                return Err(Error::LimitCount);
            }
        }
        match peek(args) {
            Some(_) if rules.is_empty() => return Err(Error::PolicySyntax),
            Some(arg) if parse_integer(arg).is_some() => return Err(Error::CostInPolicy),
            _ => {}
        }
        Self::new(rules)
    }

    pub(super) fn new(rules: Vec<Rule>) -> Result<Self, Error> {
        if (1..=MAX_RULES).contains(&rules.len()) {
            Ok(Self(rules.into()))
        } else {
            Err(Error::LimitCount)
        }
    }

    /// The rules one by one.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[Rule] {
        &self.0
    }

    /// All rules as one limit. A single rule that fixes its cost is stored like several rules, because that state records
    /// the fixed cost.
    #[inline]
    pub fn limit(&self) -> Result<Limit<'_>, Error> {
        match &*self.0 {
            [rule] if rule.cost.is_none() => Ok(rule.limit),
            rules => Ok(Limit::Policy(PolicyLimits::new(rules)?)),
        }
    }

    /// The same rules with every amount multiplied.
    #[must_use]
    pub fn scaled(&self, by: crate::Scale) -> Self {
        let scaled = |rule: &Rule| Rule {
            limit: rule.limit.scaled(by),
            cost: rule.cost,
        };
        Self(self.0.iter().map(scaled).collect())
    }
}

fn peek<'a>(args: &(impl Iterator<Item = &'a [u8]> + Clone)) -> Option<&'a [u8]> {
    args.clone().next()
}

fn parse_rule<'a>(
    algorithm: Algorithm,
    args: &mut (impl Iterator<Item = &'a [u8]> + Clone),
) -> Result<Rule, Error> {
    check_allowed_in_policy(algorithm)?;
    let (mut limit, _) = Limit::parse(algorithm, args)?.into_owned();
    let mut options = LimitOptions::default();
    let mut cost = None;
    while let Some(arg) = peek(args) {
        if is_option(arg) {
            args.next();
            if !options.accept(&mut limit, arg, args)? {
                return Err(Error::OptionOfOtherLimit);
            }
        } else if arg.eq_ignore_ascii_case(b"COST") {
            args.next();
            cost = match (cost, parse_count(args.next(), Error::FixedCost)?) {
                (None, cost @ 1..) => Some(cost),
                _ => return Err(Error::FixedCost),
            };
        } else {
            break;
        }
    }
    Ok(Rule { limit, cost })
}

/// Reads limits and nothing else.
impl FromStr for Rules {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_ascii_whitespace().map(str::as_bytes);
        let rules = Self::parse(&mut words)?;
        match words.next() {
            None => Ok(rules),
            Some(_) => Err(Error::PolicySyntax),
        }
    }
}

/// Reads exactly one limit.
impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.parse::<Rules>()?.as_slice() {
            [rule] => Ok(*rule),
            _ => Err(Error::PolicySyntax),
        }
    }
}

/// The canonical text: `SLIDE 100 1m COST 1`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.limit)?;
        match self.cost {
            Some(cost) => write!(f, " COST {cost}"),
            None => Ok(()),
        }
    }
}

/// The canonical texts, separated by spaces.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{rule}")?;
        }
        Ok(())
    }
}
