-- Charges what was allowed while the server was unavailable: as much as still fits, so the key is at most full.
--
-- KEYS  the key
-- ARGV  the limit's own command, units, its option and the option's value (or two empty strings), the limit's parameters
local args = {unpack(ARGV, 5)}
local cost = #args + 1
args[cost] = 0 -- reports only
if ARGV[3] ~= '' then
  args[cost + 1] = ARGV[3]
  args[cost + 2] = ARGV[4]
end
local left = redis.call(ARGV[1], KEYS[1], unpack(args))[3]
local units = math.min(left, tonumber(ARGV[2]))
if units > 0 then
  args[cost] = string.format('%.0f', units)
  args[#args + 1] = 'FORCE'
  redis.call(ARGV[1], KEYS[1], unpack(args))
end
return units
