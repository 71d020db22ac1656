-- SLIDE, BUCKET and FIXED for servers without the module: all limits are evaluated, then all of them are charged or none.
--
-- KEYS  one per limit
-- ARGV  CHECK | PEEK | FORCE | RECONCILE, then for each limit: algorithm, limit, refill, window (ms), cost
-- reply as in RL.MULTI
--
-- Numbers are doubles, exact as long as limit x window stays below 2^53.

local LARGEST = 9007199254740991
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mode = ARGV[1]

local function pack(...)
  local words = {...}
  for i = 2, #words do words[i] = string.format('%.0f', words[i]) end
  return table.concat(words, ':')
end

-- Each algorithm returns a table: the units in use, and two functions.
-- `wait(room)`: time until no more than `room` is in use. `after(cost)`: the value to store, and the time until it no longer matters.
local algorithms = {}

function algorithms.SLIDE(stored, limit, _, window)
  local start, span, current, previous = now, window, 0, 0
  if stored then start, span, current, previous = unpack(stored) end
  local stepped = now < start
  if stepped then start = now end
  if now - start >= span then
    start, previous, current = start + span, current, 0
    if now - start >= span or previous == 0 then start, previous = now, 0 end
  end
  local used = current + math.ceil(previous * (span - (now - start)) / span)
  local function clear(start, span, current, previous)
    if current > 0 then return start + 2 * span - now end
    if previous > 0 then return start + span - now end
    return 0
  end
  return {
    used = used,
    stepped = stepped,
    wait = function(room)
      if room >= current then
        return start + span - math.floor((room - current) * span / previous) - now
      end
      return start + 2 * span - math.floor(room * span / current) - now
    end,
    after = function(cost)
      local a, b, c, d = start, span, current + cost, previous
      if window ~= span and cost > 0 then a, b, c, d = now, window, cost, used end
      return pack('S', a, b, c, d), clear(a, b, c, d)
    end,
  }
end

-- Debt is counted in 1/period of a token, so that each millisecond refills a whole number of these.
function algorithms.BUCKET(stored, limit, refill, period)
  local stamp, span, debt = now, period, 0
  if stored then stamp, span, debt = unpack(stored) end
  if span ~= period then debt = math.ceil(debt * period / span) end
  debt = math.max(0, debt - math.max(0, now - stamp) * refill)
  return {
    used = math.ceil(debt / period),
    stepped = now < stamp,
    wait = function(room) return math.ceil((debt - room * period) / refill) end,
    after = function(cost)
      local total = debt + cost * period
      return pack('B', now, period, total), math.ceil(total / refill)
    end,
  }
end

function algorithms.FIXED(stored, limit, _, window)
  local start, count = now - now % window, 0
  if stored and now < stored[1] + stored[2] then count = stored[3] end
  local function clear(count) return count > 0 and start + window - now or 0 end
  return {
    used = count,
    stepped = stored and now < stored[1],
    wait = function() return start + window - now end,
    after = function(cost) return pack('F', start, window, count + cost), clear(count + cost) end,
  }
end

local function load(key, algorithm)
  local text = redis.call('GET', key)
  if not text then return nil end
  local tag, rest = string.match(text, '^(%u):([%d:]+)$')
  if tag ~= string.sub(algorithm, 1, 1) then
    return nil, 'WRONGTYPE the key holds something other than a ' .. algorithm .. ' limit'
  end
  local numbers = {}
  for digits in string.gmatch(rest, '%d+') do numbers[#numbers + 1] = tonumber(digits) end
  return numbers
end

local function within(number, least) return number and number >= least and number <= LARGEST end

local decided, all_allowed, longest, seen = {}, true, 0, {}
for i, key in ipairs(KEYS) do
  local at = 5 * i - 3
  local algorithm = ARGV[at]
  local limit, refill = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local window, cost = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  if seen[key] then return redis.error_reply('ERR a key may occur only once') end
  seen[key] = true
  if not within(limit, 0) then return redis.error_reply('ERR limit must be an integer between 0 and 2^53-1') end
  if not within(refill, 1) then return redis.error_reply('ERR refill must be an integer between 1 and 2^53-1') end
  if not within(window, 1) or window > 315360000000 then
    return redis.error_reply('ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)')
  end
  if not within(cost, 0) then return redis.error_reply('ERR cost must be an integer between 0 and 2^53-1') end

  local stored, wrong = load(key, algorithm)
  if wrong then return redis.error_reply(wrong) end
  local state = algorithms[algorithm](stored, limit, refill, window)
  if mode == 'RECONCILE' then cost = math.max(0, math.min(cost, limit - state.used)) end
  local forced = mode == 'FORCE' or mode == 'RECONCILE'
  local allowed = forced or state.used + cost <= limit
  local retry = 0
  if not allowed then retry = cost > limit and -1 or state.wait(limit - cost) end
  if not allowed then
    all_allowed = false
    if retry < 0 or longest < 0 then longest = -1 else longest = math.max(longest, retry) end
  end
  decided[i] = {key = key, limit = limit, cost = cost, state = state, allowed = allowed, retry = retry}
end

local replies = {}
for i, d in ipairs(decided) do
  local spent = d.allowed and all_allowed and d.cost or 0
  local value, void_in = d.state.after(spent)
  -- A denial stores nothing, unless the clock has stepped back: otherwise every call would restart the wait.
  if mode ~= 'PEEK' and d.cost > 0 and void_in > 0 and (all_allowed or d.state.stepped) then
    redis.call('SET', d.key, value, 'PX', string.format('%.0f', void_in))
  end
  -- A limit that allows the call reports what is left after it, unless another limit denied it.
  replies[i] = {d.allowed and 1 or 0, d.limit, math.max(0, d.limit - d.state.used - spent), d.retry, void_in}
end
return {all_allowed and 1 or 0, longest, replies}
