//! Several limits on one key, as a policy has them: all must allow, or nothing is spent anywhere.
//!
//! A member's state is kept in its packed form where it has one: three such members need no memory of
//! their own. Logs are kept as they are, and changed step by step.

use std::fmt;

use smallvec::SmallVec;

use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome};
use crate::encoding::{Blob, varint};
use crate::inspect::{Field, Shown};
use crate::{Algorithm, Error, exact};

pub(crate) const NAME: &str = "POLICY";
pub(crate) const TAG: u8 = 0;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 1;

/// Most limits of a policy.
pub const MAX_RULES: usize = 16;

/// Members of a state that needs no memory of its own.
const FEW: usize = 3;

/// A limit of a policy: the call brings the cost, unless the rule fixes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is checked.
    pub limit: crate::Limit<'static>,
    /// What each call costs, whatever it brings.
    pub cost: Option<u64>,
}

impl Rule {
    /// What a call that brings `cost` takes. A call of 0 takes nothing anywhere: it reports.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, cost: u64) -> u64 {
        match self.cost {
            Some(fixed) if cost > 0 => fixed,
            _ => cost,
        }
    }
}

/// The limits of a policy that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<'a> {
    rules: &'a [Rule],
}

impl<'a> Limit<'a> {
    /// At most [`MAX_RULES`].
    pub fn new(rules: &'a [Rule]) -> Result<Self, Error> {
        if rules.is_empty() || rules.len() > MAX_RULES {
            return Err(Error::RuleCount);
        }
        Ok(Self { rules })
    }

    pub(crate) const fn none() -> Self {
        Self { rules: &[] }
    }

    /// Policies are known by name, to whoever keeps them.
    pub(crate) fn parse(_words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Err(Error::UnknownAlgorithm)
    }

    /// Whether a state's members are these limits', place by place.
    #[must_use]
    pub(crate) fn fits(&self, state: &State) -> bool {
        state.len() == self.rules.len()
            && self.rules.iter().enumerate().all(|(place, rule)| {
                state
                    .get(place)
                    .as_ref()
                    .is_none_or(|member| is_same(rule, member))
            })
    }

    fn fixed(&self) -> u16 {
        let bit = |(place, rule): (usize, &Rule)| u16::from(rule.cost.is_some()) << place;
        self.rules.iter().enumerate().map(bit).sum()
    }

    /// The state that begins with what is known of usage so far; `None` if nothing of it is of use.
    pub(crate) fn adopt(&self, mut known: Vec<crate::State>) -> Option<State> {
        let members = pick(self.rules, &mut known);
        let members: Vec<_> = members.into_iter().map(Member::new).collect();
        members
            .iter()
            .any(|member| *member != Member::Empty)
            .then(|| State::of(self.fixed(), members))
    }
}

impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        self.rules.iter().try_for_each(|rule| write!(f, " {rule}"))
    }
}

fn is_same(rule: &Rule, state: &crate::State) -> bool {
    rule.limit.algorithm() == state.algorithm() && rule.limit.span_us() == state.span_us()
}

/// For each rule the usage to go on with: of the same algorithm and span, else of the same algorithm.
pub(crate) fn pick(rules: &[Rule], known: &mut Vec<crate::State>) -> Vec<Option<crate::State>> {
    let mut picked: Vec<_> = rules.iter().map(|_| None).collect();
    for same_span in [true, false] {
        for (rule, picked) in rules.iter().zip(&mut picked) {
            let matches = |state: &crate::State| {
                rule.limit.algorithm() == state.algorithm() && (!same_span || is_same(rule, state))
            };
            if picked.is_none()
                && let Some(place) = known.iter().position(matches)
            {
                *picked = Some(known.remove(place));
            }
        }
    }
    picked
}

/// The states of all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Up to three members in packed form; one that has no state yet is all zero.
    Few {
        /// How many members there are.
        count: u8,
        /// A bit for each member whose limit fixes the cost.
        fixed: u16,
        /// Their packed forms.
        words: [[u64; 2]; FEW],
    },
    /// All others.
    Many {
        /// A bit for each member whose limit fixes the cost.
        fixed: u16,
        /// Their states.
        members: Box<[Member]>,
    },
}

/// The state of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// Nothing has been taken.
    Empty,
    /// In its packed form.
    Packed([u64; 2]),
    /// A larger one.
    Large(Box<crate::State>),
}

impl Member {
    fn new(state: Option<crate::State>) -> Self {
        let Some(state) = state else {
            return Self::Empty;
        };
        match state.words().map(|encoded| encoded.words().try_into()) {
            Some(Ok(words)) => Self::Packed(words),
            _ => Self::Large(Box::new(state)),
        }
    }

    fn from_words(words: [u64; 2]) -> Self {
        // No packed form is all zero: it has its algorithm's tag.
        if words == [0, 0] {
            Self::Empty
        } else {
            Self::Packed(words)
        }
    }

    fn state(&self) -> Option<crate::State> {
        match self {
            Self::Empty => None,
            Self::Packed(words) => crate::State::decode(words).ok(),
            Self::Large(state) => Some((**state).clone()),
        }
    }

    fn write(&self, into: &mut Blob) {
        let blob = self.state().map(|state| state.blob());
        write_bytes(into, blob.as_deref().unwrap_or_default());
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        let bytes = read_bytes(from)?;
        if bytes.is_empty() {
            return Ok(Self::Empty);
        }
        let state = crate::State::decode_blob(bytes)?;
        match state.algorithm() {
            Algorithm::Lease | Algorithm::Group => Err(Error::DamagedState),
            _ => Ok(Self::new(Some(state))),
        }
    }
}

/// A member's state at hand for a decision: read from its packed form, or where it is kept.
enum Seen<'s> {
    Nothing,
    Read(crate::State),
    Kept(&'s crate::State),
}

impl Seen<'_> {
    fn as_ref(&self) -> Option<&crate::State> {
        match self {
            Self::Nothing => None,
            Self::Read(state) => Some(state),
            Self::Kept(state) => Some(state),
        }
    }
}

impl State {
    /// In the one form that these members have, so that equal states are equal.
    fn of(fixed: u16, members: Vec<Member>) -> Self {
        let small = |member: &Member| !matches!(member, Member::Large(_));
        if members.len() > FEW || !members.iter().all(small) {
            let members = members.into();
            return Self::Many { fixed, members };
        }
        let mut words = [[0; 2]; FEW];
        for (to, member) in words.iter_mut().zip(&members) {
            if let Member::Packed(packed) = member {
                *to = *packed;
            }
        }
        let count = members.len() as u8;
        Self::Few {
            count,
            fixed,
            words,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Few { count, .. } => usize::from(*count),
            Self::Many { members, .. } => members.len(),
        }
    }

    fn fixed(&self) -> u16 {
        match self {
            Self::Few { fixed, .. } | Self::Many { fixed, .. } => *fixed,
        }
    }

    #[inline]
    fn get(&self, place: usize) -> Seen<'_> {
        let packed = |words: &[u64; 2]| match crate::State::decode(words) {
            Ok(state) => Seen::Read(state),
            Err(_) => Seen::Nothing,
        };
        match self {
            Self::Few { words, .. } => match words.get(place) {
                Some(words) if *words != [0, 0] => packed(words),
                _ => Seen::Nothing,
            },
            Self::Many { members, .. } => match members.get(place) {
                Some(Member::Packed(words)) => packed(words),
                Some(Member::Large(state)) => Seen::Kept(state),
                _ => Seen::Nothing,
            },
        }
    }

    fn members(&self) -> Vec<Member> {
        match self {
            Self::Few { count, words, .. } => {
                let words = words[..usize::from(*count)].iter();
                words.map(|&words| Member::from_words(words)).collect()
            }
            Self::Many { members, .. } => members.to_vec(),
        }
    }

    /// What there is of usage, to go on with under other limits.
    pub(crate) fn known(&self) -> Vec<crate::State> {
        let states = self.members().into_iter();
        states.filter_map(|member| member.state()).collect()
    }

    pub(crate) fn apply(&mut self, next: &Next) {
        match next {
            Next::Whole(state) => *self = state.clone(),
            Next::Steps { fixed, steps } if steps.len() == self.len() => {
                let now = std::mem::replace(self, Self::of(0, Vec::new()));
                let mut members = match now {
                    Self::Many { members, .. } => members.into_vec(),
                    few => few.members(),
                };
                for (member, step) in members.iter_mut().zip(steps) {
                    step.apply(member);
                }
                *self = Self::of(*fixed, members);
            }
            // A forged step, of another state.
            Next::Steps { .. } => {}
        }
    }

    pub(crate) fn begin(next: &Next) -> Option<Self> {
        let state = match next {
            Next::Whole(state) => state.clone(),
            Next::Steps { fixed, steps } => {
                let mut members = vec![Member::Empty; steps.len()];
                for (member, step) in members.iter_mut().zip(steps) {
                    step.apply(member);
                }
                Self::of(*fixed, members)
            }
        };
        (!state.is_empty()).then_some(state)
    }

    pub(crate) fn is_empty(&self) -> bool {
        (0..self.len()).all(|place| self.get(place).as_ref().is_none())
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        let expiry = |place| self.get(place).as_ref().map(crate::State::expire_at_ms);
        (0..self.len()).filter_map(expiry).max().unwrap_or(0)
    }

    /// Gives units back to the members whose cost the call brought. The most that any of them took back
    /// is what the caller is told.
    pub(crate) fn refund(&self, now_us: u64, units: u64) -> Result<(u64, Option<Next>), Error> {
        let mut given = 0;
        let mut steps = Vec::with_capacity(self.len());
        for place in 0..self.len() {
            let seen = self.get(place);
            let step = match seen.as_ref() {
                Some(state) if self.fixed() >> place & 1 == 0 => {
                    let back = state.refund(now_us, units)?;
                    given = given.max(back.units);
                    match back.next {
                        _ if back.units == 0 => Step::Keep,
                        Some(next) => Step::new(next)?,
                        None => Step::Clear,
                    }
                }
                _ => Step::Keep,
            };
            steps.push(step);
        }
        let next = Next::Steps {
            fixed: self.fixed(),
            steps,
        };
        let mut left = self.clone_small();
        if let Some(left) = &mut left {
            left.apply(&next);
            return Ok((given, (!left.is_empty()).then(|| Next::Whole(left.clone()))));
        }
        let Next::Steps { steps, .. } = &next else {
            return Err(Error::Internal);
        };
        let stays = |(place, step): (usize, &Step)| match step {
            Step::Keep => self.get(place).as_ref().is_some(),
            Step::Clear => false,
            _ => true,
        };
        let in_use = steps.iter().enumerate().any(stays);
        Ok((given, in_use.then_some(next)))
    }

    /// A copy, unless it would be that of a log.
    fn clone_small(&self) -> Option<Self> {
        (!self.has_log()).then(|| self.clone())
    }

    fn has_log(&self) -> bool {
        match self {
            Self::Few { .. } => false,
            Self::Many { members, .. } => members.iter().any(|member| match member {
                Member::Large(state) => state.algorithm().is_live(),
                _ => false,
            }),
        }
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        let member = |place: usize| {
            let seen = self.get(place);
            let (name, mut fields) = match seen.as_ref() {
                Some(state) => (state.algorithm().name(), state.inspect(now_us)),
                None => ("", Vec::new()),
            };
            let fixed = u64::from(self.fixed() >> place & 1);
            fields.push(Field::number("fixed_cost", fixed));
            (name, fields)
        };
        let members = (0..self.len()).map(member).collect();
        vec![Field {
            name: "limits",
            value: Shown::Members(members),
        }]
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let Self::Many { members, .. } = self else {
            return 0;
        };
        let large = members.iter().map(|member| match member {
            Member::Large(state) => size_of::<crate::State>() + state.heap_bytes(),
            _ => 0,
        });
        size_of_val(&**members) + large.sum::<usize>()
    }

    pub(crate) fn pieces(&self) -> usize {
        let Self::Many { members, .. } = self else {
            return 1;
        };
        let large = members.iter().map(|member| match member {
            Member::Large(state) => 1 + state.pieces(),
            _ => 0,
        });
        2 + large.sum::<usize>()
    }

    pub(crate) fn write(&self, into: &mut Blob) {
        varint::write(into, self.len() as u64);
        varint::write(into, self.fixed().into());
        for member in self.members() {
            member.write(into);
        }
    }

    pub(crate) fn read(mut from: &[u8]) -> Result<Self, Error> {
        let state = Self::read_from(&mut from)?;
        if from.is_empty() && !state.is_empty() {
            Ok(state)
        } else {
            Err(Error::DamagedState)
        }
    }

    fn read_from(from: &mut &[u8]) -> Result<Self, Error> {
        let (count, fixed) = read_head(from)?;
        let members = (0..count).map(|_| Member::read(from));
        Ok(Self::of(fixed, members.collect::<Result<_, _>>()?))
    }
}

/// How many members there are, and which of them have a fixed cost.
fn read_head(from: &mut &[u8]) -> Result<(usize, u16), Error> {
    let count = varint::read(from)?;
    let fixed = varint::read(from)?;
    match u16::try_from(fixed) {
        Ok(bits) if (1..=MAX_RULES as u64).contains(&count) && fixed >> count == 0 => {
            Ok((count as usize, bits))
        }
        _ => Err(Error::DamagedState),
    }
}

fn write_bytes(into: &mut Blob, bytes: &[u8]) {
    varint::write(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

fn read_bytes<'b>(from: &mut &'b [u8]) -> Result<&'b [u8], Error> {
    let len = usize::try_from(varint::read(from)?).map_err(|_| Error::DamagedState)?;
    let (bytes, rest) = from.split_at_checked(len).ok_or(Error::DamagedState)?;
    *from = rest;
    Ok(bytes)
}

/// What a call leaves to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All members anew.
    Whole(State),
    /// A step for each member, where one of them has a log.
    Steps {
        /// A bit for each member whose limit fixes the cost.
        fixed: u16,
        /// In the order of the members.
        steps: Vec<Step>,
    },
}

/// What becomes of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It stays as it is.
    Keep,
    /// It holds nothing any more.
    Clear,
    /// It is replaced.
    Whole(Member),
    /// Its log takes a step.
    Exact(exact::Next),
}

impl Step {
    fn new(next: crate::Next) -> Result<Self, Error> {
        match next {
            crate::Next::Whole(state) => Ok(Self::Whole(Member::new(Some(state)))),
            crate::Next::Exact(step) => Ok(Self::Exact(step)),
            _ => Err(Error::Internal),
        }
    }

    fn apply(&self, member: &mut Member) {
        match self {
            Self::Keep => {}
            Self::Clear => *member = Member::Empty,
            Self::Whole(whole) => *member = whole.clone(),
            Self::Exact(step) => {
                if let Member::Large(state) = member
                    && let crate::State::Exact(log) = &mut **state
                {
                    log.apply(step);
                    if log.is_empty() {
                        *member = Member::Empty;
                    }
                } else if let Some(log) = exact::State::begin(step) {
                    *member = Member::new(Some(crate::State::Exact(log)));
                }
            }
        }
    }
}

const WHOLE: u64 = 0;
const STEPS: u64 = 1;

impl Next {
    pub(crate) fn write(&self, into: &mut Blob) {
        match self {
            Self::Whole(state) => {
                varint::write(into, WHOLE);
                state.write(into);
            }
            Self::Steps { fixed, steps } => {
                varint::write(into, STEPS);
                varint::write(into, steps.len() as u64);
                varint::write(into, (*fixed).into());
                for step in steps {
                    match step {
                        Step::Keep => varint::write(into, 0),
                        Step::Clear => varint::write(into, 1),
                        Step::Whole(member) => {
                            varint::write(into, 2);
                            member.write(into);
                        }
                        Step::Exact(step) => {
                            varint::write(into, 3);
                            let mut bytes = Blob::new();
                            step.write(&mut bytes);
                            write_bytes(into, &bytes);
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn read(mut from: &[u8]) -> Result<Self, Error> {
        let next = match varint::read(&mut from)? {
            WHOLE => Self::Whole(State::read_from(&mut from)?),
            STEPS => {
                let (count, fixed) = read_head(&mut from)?;
                let steps = (0..count).map(|_| Step::read(&mut from));
                let steps = steps.collect::<Result<_, _>>()?;
                Self::Steps { fixed, steps }
            }
            _ => return Err(Error::DamagedState),
        };
        if from.is_empty() {
            Ok(next)
        } else {
            Err(Error::DamagedState)
        }
    }
}

impl Step {
    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        Ok(match varint::read(from)? {
            0 => Self::Keep,
            1 => Self::Clear,
            2 => Self::Whole(Member::read(from)?),
            3 => Self::Exact(exact::Next::read(read_bytes(from)?)?),
            _ => return Err(Error::DamagedState),
        })
    }
}

/// One member's answer, and the state that it was made from.
struct Answer<'s> {
    seen: Seen<'s>,
    outcome: Outcome<crate::Next<'static>>,
}

pub(crate) fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Outcome<Next>, Error> {
    if stored.is_some_and(|stored| stored.len() != limit.rules.len()) {
        return Err(Error::WrongAlgorithm);
    }
    let mut answers = SmallVec::<[Answer; FEW]>::new();
    for (place, rule) in limit.rules.iter().enumerate() {
        let seen = stored.map_or(Seen::Nothing, |stored| stored.get(place));
        let outcome = member(rule, seen.as_ref(), now_us, cost, mode)?;
        answers.push(Answer { seen, outcome });
    }
    let first = answers.first().ok_or(Error::Internal)?;
    let mut decision = first.outcome.decision;
    for (place, answer) in answers.iter().enumerate().skip(1) {
        if decides_over(&answer.outcome.decision, &decision) {
            decision = answer.outcome.decision;
            decision.index = place as i8;
        }
    }
    if !decision.allowed {
        // What the others allowed is not spent. A clock that stepped back is noticed where it denied.
        for answer in &mut answers {
            if answer.outcome.decision.allowed {
                answer.outcome.next = None;
            }
        }
    }

    let before_ms = answers
        .iter()
        .filter_map(|answer| answer.seen.as_ref().map(crate::State::expire_at_ms))
        .max();
    let after_ms = answers
        .iter()
        .filter_map(|answer| match &answer.outcome.next {
            Some(_) => Some(answer.outcome.expiry.at_ms),
            None => answer.seen.as_ref().map(crate::State::expire_at_ms),
        })
        .max();
    Ok(Outcome {
        decision,
        expiry: Expiry {
            at_ms: after_ms.unwrap_or(0),
            unmoved: before_ms.is_some() && before_ms == after_ms,
        },
        next: next_of(limit, stored, answers)?,
    })
}

/// A denial decides over an answer that allows, the longest wait among denials, the least that remains
/// otherwise.
fn decides_over(one: &Decision, other: &Decision) -> bool {
    let wait = |decision: &Decision| match decision.retry_after_ms {
        NEVER => i64::MAX,
        ms => ms,
    };
    match (one.allowed, other.allowed) {
        (false, false) => wait(one) > wait(other),
        (true, true) => one.remaining < other.remaining,
        (one, _) => !one,
    }
}

#[inline(never)]
fn member(
    rule: &Rule,
    stored: Option<&crate::State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Outcome<crate::Next<'static>>, Error> {
    let cost = rule.cost_of(cost);
    match rule.limit {
        // Neither belongs into a policy, nor comes to be in one.
        crate::Limit::Lease(_) | crate::Limit::Group(_) => Err(Error::Internal),
        limit => limit.evaluate(stored, now_us, cost, mode),
    }
}

fn next_of(
    limit: &Limit,
    stored: Option<&State>,
    answers: SmallVec<[Answer; FEW]>,
) -> Result<Option<Next>, Error> {
    if answers.iter().all(|answer| answer.outcome.next.is_none()) {
        return Ok(None);
    }
    let fixed = limit.fixed();
    let steps = |answer: &Answer| matches!(answer.outcome.next, Some(crate::Next::Exact(_)));
    if answers.iter().any(steps) || stored.is_some_and(State::has_log) {
        let steps = answers.into_iter().map(|answer| match answer.outcome.next {
            Some(next) => Step::new(next),
            None => Ok(Step::Keep),
        });
        let steps = steps.collect::<Result<_, _>>()?;
        return Ok(Some(Next::Steps { fixed, steps }));
    }
    // The usual case, without a detour over the heap.
    let mut few = [[0; 2]; FEW];
    let mut fits = answers.len() <= FEW;
    for (to, answer) in few.iter_mut().zip(&answers) {
        let state = match &answer.outcome.next {
            Some(crate::Next::Whole(state)) => Some(state),
            _ => answer.seen.as_ref(),
        };
        if let Some(state) = state {
            let words = state.words();
            match words.as_ref().map(|encoded| encoded.words()) {
                Some(&[high, low]) => *to = [high, low],
                _ => fits = false,
            }
        }
    }
    if fits {
        return Ok(Some(Next::Whole(State::Few {
            count: answers.len() as u8,
            fixed,
            words: few,
        })));
    }
    let members = answers.into_iter().map(|answer| match answer.outcome.next {
        Some(crate::Next::Whole(state)) => Member::new(Some(state)),
        _ => Member::new(answer.seen.as_ref().cloned()),
    });
    Ok(Some(Next::Whole(State::of(fixed, members.collect()))))
}
