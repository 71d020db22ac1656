-- Takes a budget, or if it does not fit, the cost of one call.
--
-- KEYS  the key
-- ARGV  command, the limit's parameters, budget, cost
-- reply the five integers, the units taken, and the server's time (us) just before
local time = redis.call('TIME')
local command, budget, cost = ARGV[1], ARGV[#ARGV - 1], ARGV[#ARGV]
local words = {unpack(ARGV, 2, #ARGV - 2)}
local last = #words + 1
words[last] = budget
local reply = redis.call(command, KEYS[1], unpack(words))
local taken = budget
if reply[1] == 0 then
  words[last] = cost
  reply = redis.call(command, KEYS[1], unpack(words))
  taken = cost
end
return {reply, reply[1] * tonumber(taken), time[1] * 1000000 + time[2]}
