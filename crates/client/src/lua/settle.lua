-- Charges what was admitted while the server was away: as much as still fits, so the key is at most full.
--
-- KEYS  the key
-- ARGV  algorithm, the limit's parameters, units
local words = {unpack(ARGV, 2, #ARGV - 1)}
local last = #words + 1
words[last] = 0
local left = redis.call('RL.PEEK', KEYS[1], ARGV[1], unpack(words))[3]
local units = math.min(left, tonumber(ARGV[#ARGV]))
if units > 0 then
  words[last] = string.format('%.0f', units)
  words[last + 1] = 'FORCE'
  local command = ARGV[1] == 'POLICY' and 'RL.CHECK' or 'RL.' .. ARGV[1]
  redis.call(command, KEYS[1], unpack(words))
end
return units
